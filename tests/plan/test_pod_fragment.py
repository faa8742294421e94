"""Fragments of pod specs: what is added stays, what gpuform sets stays, and contradictions name both keys."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pulumi_kubernetes.core.v1 import ContainerArgs, PodSpecArgs

from infra.model.base.errors import InputError
from infra.model.placement import driver_upgrade
from infra.model.workload.pod_fragment import CONTAINER_FIELDS, FIELDS
from infra.plan import quotas, workloads
from tests.build.environments import on, pod_spec

pytestmark = pytest.mark.unit

Json = dict[str, Any]
WORK = {"name": "w", "kind": "deployment", "namespace": "ml", "pool": "p0", "image": "a:1"}
POOL = {"machine": "g4dn.xlarge", "nodes": 8, "sharing": {"kind": "time_slicing", "replicas": 4}}


def environment(fragment: Json, level: str = "privileged", **work: Any) -> Any:
    space = {"name": "ml", "pod_security": level}
    return on("embedded", POOL, workloads=[{**WORK, **work, "pod": fragment}], namespaces=[space])


def spec(fragment: Json, level: str = "privileged", **work: Any) -> Json:
    env = environment(fragment, level, **work)
    return pod_spec(workloads.controller(env, env.workloads[0]))


def container(fragment: Json, level: str = "privileged", **work: Any) -> Json:
    """The workload's own container, with a fragment of it."""
    found: Json = spec({"containers": [{"name": "w", **fragment}]}, level, **work)["containers"][0]
    return found


@pytest.mark.parametrize(("fields", "theirs"), [(FIELDS, PodSpecArgs), (CONTAINER_FIELDS, ContainerArgs)])
def test_every_field_is_one_of_kubernetes(fields: frozenset[str], theirs: Any) -> None:
    known = set(inspect.signature(theirs.__init__).parameters)
    assert {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", field).lower() for field in fields} <= known


def test_lists_are_merged_by_the_names_of_their_entries() -> None:
    found = spec(
        {
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "m"}}],
            "tolerations": [{"key": "team", "operator": "Exists"}],
            "initContainers": [{"name": "first", "image": "b:1"}],
            "containers": [
                {
                    "name": "w",
                    "env": [{"name": "B", "value": "2"}],
                    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                },
                {"name": "side", "image": "c:1"},
            ],
        },
        shm="64Mi",
        env={"A": "1"},
    )
    own, side = found["containers"]
    assert [item["name"] for item in own["env"]] == ["A", "B"]
    assert [item["mountPath"] for item in own["volumeMounts"]] == ["/dev/shm", "/models"]
    assert [item["name"] for item in found["volumes"]] == ["shm", "models"]
    assert [item["key"] for item in found["tolerations"]] == ["nvidia.com/gpu", "team"]
    assert side["securityContext"] == own["securityContext"] == found["initContainers"][0]["securityContext"]
    assert own["resources"]["limits"]["nvidia.com/gpu.shared"] == "1"


@pytest.mark.parametrize(
    ("context", "own", "pods"),
    [
        ({}, {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, True),
        (
            {"runAsUser": 0},
            {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsUser": 0},
            None,
        ),
        ({"privileged": True}, {"capabilities": {"drop": ["ALL"]}, "privileged": True}, True),
        (
            {"capabilities": {"add": ["IPC_LOCK"]}},
            {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}},
            True,
        ),
        (
            {"capabilities": {"drop": ["NET_RAW"]}},
            {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}},
            True,
        ),
    ],
)
def test_security_contexts_are_defaults(context: Json, own: Json, pods: bool | None) -> None:
    for name in ("w", "side"):
        found = spec({"containers": [{"name": name, "image": "a:1", "securityContext": context}]})
        assert found["containers"][-1]["securityContext"] == own
        assert found["securityContext"].get("runAsNonRoot") is pods


@pytest.mark.parametrize(("fragment", "mounted"), [({}, False), ({"serviceAccountName": "a"}, None)])
def test_a_service_account_brings_its_token(fragment: Json, mounted: bool | None) -> None:
    assert spec({"dnsPolicy": "Default", **fragment}).get("automountServiceAccountToken") is mounted


REFUSED = yaml.safe_load(Path(__file__).with_name("pod_fragment.yaml").read_text())


@pytest.mark.parametrize("row", REFUSED, ids=[row["path"] for row in REFUSED])
def test_what_cannot_be_is_refused_with_its_path(row: Json) -> None:
    with pytest.raises(InputError) as refusal:
        environment(row["fragment"])
    assert refusal.value.path == f"workloads[0].{row['path']}"
    assert row["text"] in str(refusal.value)


@pytest.mark.parametrize(
    ("level", "fragment", "fact"),
    [
        ("restricted", {"hostNetwork": True}, "has hostNetwork"),
        (
            "baseline",
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            "has a volume of kind hostPath",
        ),
        ("restricted", {"containers": [{"name": "w", "securityContext": {"runAsUser": 0}}]}, "runAsNonRoot"),
    ],
)
def test_the_namespace_must_admit_the_pods(level: str, fragment: Json, fact: str) -> None:
    with pytest.raises(InputError, match=f"{fact}.* namespace ml has pod_security {level}"):
        environment(fragment, level)
    environment(fragment)


def test_a_namespace_has_its_level_and_no_quota_unless_it_is_given() -> None:
    env = environment({}, "baseline")
    (found,) = [item for item in quotas.namespaces(env) if item["metadata"]["name"] == "ml"]
    assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    assert quotas.resource_quotas(env) == ()
    with pytest.raises(InputError, match=r"namespaces\[0\].pod_security: namespace default exists already"):
        on("embedded", POOL, namespaces=[{"name": "default", "pod_security": "privileged"}])


def test_a_driver_upgrade_knows_the_volumes_that_it_would_delete() -> None:
    env = environment({"volumes": [{"name": "v", "emptyDir": {}}]})
    assert driver_upgrade.has_empty_dir(env.workloads[0])


NAMES = st.sampled_from(("a", "b", "c"))
SCALARS = st.one_of(st.booleans(), st.integers(0, 9), NAMES)
FREE = st.fixed_dictionaries(
    {},
    optional={
        "dnsPolicy": NAMES,
        "terminationGracePeriodSeconds": st.integers(0, 9),
        "imagePullSecrets": st.lists(
            NAMES.map(lambda name: {"name": name}), unique_by=lambda item: item["name"]
        ),
        "volumes": st.lists(
            NAMES.map(lambda name: {"name": name, "emptyDir": {}}), unique_by=lambda item: item["name"]
        ),
        "tolerations": st.lists(NAMES.map(lambda name: {"key": name}), max_size=3),
        "affinity": st.dictionaries(NAMES, st.dictionaries(NAMES, SCALARS, max_size=2), max_size=2),
        "nodeSelector": st.dictionaries(NAMES, NAMES, max_size=2),
    },
)
OF_THE_CONTAINER = st.fixed_dictionaries(
    {"name": st.just("w")},
    optional={
        "tty": st.booleans(),
        "env": st.lists(
            NAMES.map(lambda name: {"name": name, "value": "1"}), unique_by=lambda item: item["name"]
        ),
        "resources": st.fixed_dictionaries({"limits": st.dictionaries(st.just("cpu"), st.integers(1, 9))}),
    },
)


@given(FREE, OF_THE_CONTAINER)
def test_what_the_user_says_and_what_gpuform_sets_survive(free: Json, own: Json) -> None:
    plain, merged = spec({}), spec({**free, "containers": [own]})
    assert holds(merged, {**free, "containers": [own]})
    assert holds(merged, plain)


ANYTHING = st.recursive(
    st.one_of(st.none(), SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(("name", "a", "env", "securityContext", "capabilities")), inner, max_size=2
        ),
    ),
    max_leaves=6,
)
CONTAINER = st.dictionaries(st.sampled_from(sorted(CONTAINER_FIELDS)), ANYTHING, max_size=3)


@given(
    st.dictionaries(st.sampled_from(sorted(FIELDS)), ANYTHING, max_size=3),
    st.lists(CONTAINER.map(lambda found: {"name": "w", **found}), max_size=2),
)
def test_whatever_a_fragment_holds_it_is_refused_or_merged(fragment: Json, own: list[Json]) -> None:
    with suppress(InputError):
        environment({**fragment, **({"containers": own} if own else {})})


def holds(whole: Any, part: Any) -> bool:
    """Whether everything of a part is in the whole, entries of lists in any place."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and holds(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(holds(item, entry) for item in whole) for entry in part)
    return bool(whole == part)
