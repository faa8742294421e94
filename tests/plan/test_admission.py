"""Admission policies on a real API server: they refuse what `gpuform check` finds, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from gpuform.manifests import documents, judge
from gpuform.manifests.pods import find
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.plan import admission
from lab.rehearse import foreign
from tests.build.environments import on
from tests.conftest import Plane
from tests.dry_run import DryRun, dry_run
from tests.waiting import until

Json = dict[str, Any]
MANIFESTS = Path(__file__).parents[1] / "manifests"
ROWS = yaml.safe_load((MANIFESTS / "findings.yaml").read_text())
NOT_JUDGED = (
    "nodeAffinity",
    "rdma",  # the policies are about GPUs
    "on the same node",
    "whole number",
    "more memory",
    "cores",
    "without a limit",
    "NVIDIA_VISIBLE",
    "not set there",
)
"""What only `gpuform check` finds, or the API server refuses by itself."""
DEFAULT, PACKER = "default-scheduler", "gpuform-packer"
SHARED = {"machine": "g4dn.xlarge", "nodes": 8, "sharing": {"kind": "time_slicing", "replicas": 4}}


@pytest.mark.unit
def test_there_is_none_unless_it_is_asked_for_and_a_pool_offers_gpus() -> None:
    assert admission.manifests(on("embedded", SHARED)) == ()
    assert admission.manifests(on("embedded", {"machine": "m6i.xlarge"}, admission="deny")) == ()


@pytest.mark.unit
@pytest.mark.parametrize(
    ("mode", "actions"), [("warn", ["Warn", "Warn"]), ("deny", ["Deny", "Warn"]), ("fix", ["Warn", "Warn"])]
)
def test_templates_are_never_refused(mode: str, actions: list[str]) -> None:
    made = admission.manifests(on("embedded", SHARED, admission=mode))
    bindings = [item["spec"] for item in made if item["kind"].endswith("Binding")]
    assert [action for spec in bindings for action in spec.get("validationActions", ())] == actions
    assert any(item["kind"].startswith("Mutating") for item in made) == (mode == "fix")
    assert {spec["policyName"] for spec in bindings} == {
        item["metadata"]["name"] for item in made if item["kind"].endswith("Policy")
    }


class Admitted:
    """A namespace of the plane in which the policies of an environment are active."""

    def __init__(self, answers: DryRun, namespace: str, env: Environment) -> None:
        self.answers, self.namespace, self.env = answers, namespace, env
        self.objects = [copy.deepcopy(item) for item in admission.manifests(env)]
        for item in self.objects:
            item["metadata"]["name"] = f"{namespace}-{item['metadata']['name']}"
            if item["kind"].endswith("Binding"):
                item["spec"]["policyName"] = item["metadata"]["name"]
                only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
                item["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"].append(only)

    def said(self, manifest: Json) -> str:
        """The server's refusal or warnings; nothing is stored."""
        return self.answers.create({**manifest, "metadata": {"name": "a", "namespace": self.namespace}})

    def spec(self, spec: Json) -> Json:
        """The pod spec that the server would store."""
        made = {**pod(spec), "metadata": {"name": "a", "namespace": self.namespace}}
        found: Json = self.answers.stored(made)["spec"]
        return found

    def wait(self) -> None:
        """Until both kinds of policies act: on a pod that no pool can run, and on one that a pool can."""
        unknown = pod(requesting("nvidia.com/none"))
        until(lambda: self.said(unknown), lambda text: "no GPU pool" in text, 30)
        if any(item["kind"].startswith("Mutating") for item in self.objects):
            name = next(name for pool in self.env.pools for name in allocatable.gpu_resources(pool))
            until(lambda: self.spec(requesting(name)), has_additions, 30)


def requesting(resource: str, **spec: Any) -> Json:
    container = {"name": "a", "image": "a:1", "resources": {"limits": {resource: "1"}}}
    return {"containers": [container], **spec}


def tolerations(spec: Json) -> list[Json]:
    """Without those that Kubernetes gives every pod."""
    return [item for item in spec["tolerations"] if not item.get("key", "").startswith("node.kubernetes.io/")]


def has_additions(spec: Json) -> bool:
    return bool(tolerations(spec) or spec.get("runtimeClassName") or spec["schedulerName"] != DEFAULT)


def pod(spec: Json) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


@pytest.fixture
def admitted(control_plane: Plane) -> Iterator[Any]:
    made: list[Json] = []

    def start(environments: Sequence[Environment]) -> list[Admitted]:
        run = uuid4().hex[:8]
        found = [Admitted(answers, f"admission-{run}-{index}", env) for index, env in enumerate(environments)]
        for one in found:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one.namespace}}
            made.extend((space, *one.objects))
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(listed(made)))
        for one in found:
            one.wait()
        return found

    with dry_run(control_plane.kubeconfig) as answers:
        yield start
    control_plane.kubectl("delete", "--wait=false", "-f", "-", input=json.dumps(listed(made)))


def listed(items: Sequence[Json]) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def errors_of(env: Environment, spec: Json) -> list[str]:
    """The errors of `gpuform check` that a policy may find, too."""
    given = documents.parse("f", yaml.safe_dump(pod(spec)))
    found = judge.judge(env, [one for item in given for one in find(item)], given, "default").findings
    texts = [f"{one.path} {one.fact}" for one in found if one.level == "error"]
    return [text for text in texts if not any(part in text for part in NOT_JUDGED)]


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["deny", "fix"])
def test_what_is_refused_is_an_error_of_check_and_the_other_way_round(admitted: Any, mode: str) -> None:
    environments = [
        on("embedded", *row["pools"], **{**row.get("env", {}), "admission": mode}) for row in ROWS
    ]
    for row, env, one in zip(ROWS, environments, admitted(environments), strict=True):
        said = one.said(pod(row["spec"]))
        refused = "denied request" if mode == "deny" else "Warning: Validation failed"
        assert (refused in said) == bool(errors_of(env, row["spec"])), (row, said)


@pytest.mark.cluster
def test_pods_of_other_kinds_are_refused_as_they_are_and_accepted_once_fixed(
    admitted: Any, control_plane: Plane
) -> None:
    env = on("embedded", SHARED, admission="deny")
    (one,) = admitted([env])
    others = foreign.read(env, [MANIFESTS / "kinds.yaml"])
    templates = [item for item in others.manifests if item["kind"] in ("Pod", "Deployment", "Job")]
    assert len(templates) >= 12
    for item in templates:
        template = item if item["kind"] == "Pod" else item["spec"]["template"]
        (container, *_) = template["spec"]["containers"]
        if not any(name.startswith("nvidia.com/") for name in container["resources"].get("limits", {})):
            continue
        said = one.said(pod(template["spec"]))
        assert "does not tolerate or select nodes of pool p0" in said, item["metadata"]["name"]
        tolerated = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        assert one.said(pod({**template["spec"], "tolerations": tolerated})) == ""
        if item["kind"] != "Pod":
            assert one.said(item).startswith("Warning: Validation failed")
    status = ("get", "validatingadmissionpolicies", "-o", "jsonpath={.items[*].status.typeChecking}")
    assert "expressionWarnings" not in control_plane.kubectl(*status)


WHOLE: Json = {
    "name": "whole",
    "machine": "g2.5xlarge",
    "nodes": 2,
    "taints": [{"key": "team", "value": "a"}],
}
WHOLE["taints"] += [{"key": "old", "value": "a", "effect": "PreferNoSchedule"}]
SPOT = {"name": "spot", "machine": "g2.5xlarge", "nodes": 2, "taints": [{"key": "spot", "value": "yes"}]}
GPU, TEAM = (
    {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
    for key, value in (("nvidia.com/gpu", "true"), ("team", "a"))
)


@pytest.mark.cluster
def test_pods_get_what_all_pools_or_the_selected_one_need_and_nothing_else(admitted: Any) -> None:
    (one,) = admitted([on("embedded", WHOLE, SPOT, admission="fix", scheduling={"packer": True})])

    def fixed(resource: str, **spec: Any) -> tuple[list[Json], str]:
        made = one.spec(requesting(resource, **spec))
        return tolerations(made), made["schedulerName"]

    selected = {"nodeSelector": {"gpuform.io/pool": "whole"}}
    mine, every = {"key": "mine", "operator": "Exists"}, {"operator": "Exists"}
    assert fixed("nvidia.com/gpu") == ([GPU], PACKER)
    assert fixed("nvidia.com/gpu", **selected) == ([GPU, TEAM], PACKER)
    assert fixed("nvidia.com/gpu", tolerations=[mine]) == ([mine, GPU], PACKER)
    assert fixed("nvidia.com/gpu", tolerations=[every]) == ([every], PACKER)
    assert fixed("nvidia.com/gpu", tolerations=[GPU], schedulerName="mine") == ([GPU], "mine")
    assert fixed("cpu", **selected) == ([], DEFAULT)
