"""The parts that decide without a cluster."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
import yaml

from gpuform.plugins.handler import Call, Change, Engine, PluginError
from gpuform.plugins.kubernetes import manifests
from gpuform.plugins.kubernetes.client import ApiError
from gpuform.plugins.kubernetes.difference import changes, like
from gpuform.plugins.kubernetes.ignoring import without_ignored
from gpuform.plugins.kubernetes.kubeconfig import resolve
from gpuform.plugins.kubernetes.messages import refusal
from gpuform.plugins.kubernetes.naming import field_manager, named, split_id
from gpuform.plugins.kubernetes.readiness import readiness
from gpuform.plugins.kubernetes.replacement import replacing, steps
from gpuform.plugins.properties import UNKNOWN, Secret, from_struct, has_unknown, reveal, to_struct

pytestmark = pytest.mark.unit


def call(seed: bytes = b"seed", **more: Any) -> Call:
    urn = "urn:pulumi:s::p::kubernetes:core/v1:ConfigMap::cm"
    return Call(
        urn=urn,
        type="kubernetes:core/v1:ConfigMap",
        name="cm",
        engine=Engine(),
        cancelled=asyncio.Event(),
        random_seed=seed,
        **more,
    )


def test_property_values_survive_the_wire() -> None:
    values = {
        "text": "x",
        "whole": 3,
        "part": 0.5,
        "yes": True,
        "none": None,
        "list": [1, {"a": []}],
        "map": {},
        "secret": Secret({"p": [Secret("q")]}),
        "unknown": UNKNOWN,
    }
    back = from_struct(to_struct(values))
    assert back == values
    assert isinstance(back["whole"], int)
    assert has_unknown(back)
    assert "q" not in repr(back["secret"])
    assert reveal(back["secret"]) == {"p": ["q"]}


def test_an_output_value_is_what_it_holds() -> None:
    signature = "4dabf18193072939515e22adb298388d"
    output = {signature: "d0e6a833031e9bbcd3f4e8bde6ca49a4"}
    values = {"a": output, "b": {**output, "value": "x", "secret": True}, "c": {**output, "value": "x"}}
    assert from_struct(to_struct(values)) == {"a": UNKNOWN, "b": Secret("x"), "c": "x"}


@pytest.mark.parametrize(
    ("news", "olds", "expected"),
    [
        ({}, {}, r"^cm-[0-9a-f]{8}$"),
        ({"metadata": {"name": "mine"}}, {}, r"^mine$"),
        ({}, {"metadata": {"name": "cm-old", "annotations": {"pulumi.com/autonamed": "true"}}}, r"^cm-old$"),
        ({}, {"metadata": {"name": "mine"}}, r"^cm-[0-9a-f]{8}$"),
    ],
)
def test_names(news: dict[str, Any], olds: dict[str, Any], expected: str) -> None:
    import re

    metadata = named(call(), olds, news)["metadata"]
    assert re.search(expected, metadata["name"])
    assert (metadata.get("annotations") == {"pulumi.com/autonamed": "true"}) == (metadata["name"] != "mine")


def test_a_made_up_name_follows_from_the_seed() -> None:
    names = {named(call(seed), {}, {})["metadata"]["name"] for seed in (b"a", b"a", b"b")}
    assert len(names) == 2
    assert "name" not in named(call(), {}, {"metadata": {"generateName": "x-"}})["metadata"]
    assert named(call(), {}, {"metadata": UNKNOWN}) == {"metadata": UNKNOWN}


def test_the_stack_may_choose_or_forbid_made_up_names() -> None:
    assert named(call(autonaming=("enforce", "chosen")), {}, {})["metadata"]["name"] == "chosen"
    with pytest.raises(PluginError, match=r"cm: automatic names are switched off; set metadata.name"):
        named(call(autonaming=("disable", "")), {}, {})


def test_the_field_manager_follows_from_the_urn() -> None:
    assert field_manager("urn:a") == field_manager("urn:a") != field_manager("urn:b")
    assert len(field_manager("urn:a")) == len("pulumi-kubernetes-40ab003a")


def test_ids() -> None:
    assert split_id("ns/name") == ("ns", "name")
    assert split_id("name") == (None, "name")
    with pytest.raises(PluginError, match="neither NAME nor NAMESPACE/NAME"):
        split_id("a/b/c")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": Change.UPDATE}),
        ({"a": None}, {}, {}),
        ({}, {"a": {"b": 1}}, {"a": Change.ADD}),
        ({"l": [{"x": 1}, 2]}, {"l": [{"x": 2}]}, {"l[0].x": Change.UPDATE, "l[1]": Change.DELETE}),
        ({"m": {"a.b/c": "x"}}, {"m": {}}, {'m["a.b/c"]': Change.DELETE}),
        ({"a": "x"}, {"a": UNKNOWN}, {"a": Change.UPDATE}),
        ({"a": Secret("x")}, {"a": "x"}, {}),
        ({"a": True}, {"a": 1}, {"a": Change.UPDATE}),
    ],
)
def test_differences(old: Any, new: Any, expected: dict[str, Change]) -> None:
    assert changes(old, new) == expected


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 0}, {"a": 1}),
        ({"cpu": "1"}, {"cpu": "1000m"}, {"cpu": "1000m"}),
        ({"mem": "1073741824"}, {"mem": "1Gi"}, {"mem": "1Gi"}),
        ({"cpu": "2"}, {"cpu": "1000m"}, {"cpu": "2"}),
        ({"t": [{"key": "a"}, {"key": "added"}]}, {"t": [{"key": "a"}]}, {"t": [{"key": "a"}]}),
        ({"c": [{"name": "b", "i": 2}]}, {"c": [{"name": "a", "i": 1}]}, {"c": [{"name": "b", "i": 2}]}),
        ({}, {"gone": 1}, {}),
        ({"d": {"p": "new"}}, {"d": Secret({"p": "old"})}, {"d": Secret({"p": "new"})}),
    ],
)
def test_what_a_refresh_writes_down(live: Any, wanted: Any, expected: Any) -> None:
    assert like(live, wanted) == expected


@pytest.mark.parametrize(
    ("kind", "path", "replaced"),
    [
        ("v1/ConfigMap", "data.a", True),
        ("v1/ConfigMap", 'binaryData["a.b"]', True),
        ("v1/ConfigMap", "metadata.labels.a", False),
        ("v1/ConfigMap", "immutable", False),
        ("v1/Secret", "type", True),
        ("v1/Pod", "spec.containers[0].image", True),
        ("v1/Pod", "spec.nodeSelector.a", True),
        ("v1/Pod", "spec.tolerations[2]", False),
        ("v1/Pod", "spec.activeDeadlineSeconds", False),
        ("v1/Service", "spec.clusterIP", True),
        ("v1/Service", "spec.ports[0].port", False),
        ("v1/PersistentVolumeClaim", "spec.storageClassName", True),
        ("v1/PersistentVolumeClaim", "spec.resources.requests.storage", False),
        ("apps/v1/Deployment", "spec.selector.matchLabels.a", True),
        ("apps/v1/Deployment", "spec.template.spec.containers[0].image", False),
        ("apps/v1/DaemonSet", "spec.selector", True),
        ("apps/v1/StatefulSet", "spec.volumeClaimTemplates[0].spec", True),
        ("batch/v1/Job", "spec.template.spec.containers[0].image", True),
        ("batch/v1/Job", "spec.suspend", False),
        ("batch/v1/CronJob", "spec.schedule", False),
        ("rbac.authorization.k8s.io/v1/RoleBinding", "roleRef.name", True),
        ("storage.k8s.io/v1/StorageClass", "provisioner", True),
        ("scheduling.k8s.io/v1/PriorityClass", "value", False),
        ("karpenter.sh/v1/NodePool", "spec.limits.cpu", False),
        ("karpenter.sh/v1/NodePool", "metadata.name", True),
        ("v1/Namespace", "metadata.namespace", True),
    ],
)
def test_replacement(kind: str, path: str, replaced: bool) -> None:
    api_version, _, name = kind.rpartition("/")
    assert replacing(api_version, name, [path]) == ([path] if replaced else [])


def test_mutable_content_stays_in_place() -> None:
    assert replacing("v1", "ConfigMap", ["data.a", "metadata.name"], mutable=True) == ["metadata.name"]
    assert replacing("v1", "Secret", ["data.a", "type"], mutable=True) == ["type"]


def test_paths_fall_into_their_steps() -> None:
    assert steps('metadata.annotations["a.b/c"].x[0].y') == [
        "metadata",
        "annotations",
        "a.b/c",
        "x",
        "0",
        "y",
    ]
    assert steps('data["a.b"]') == ["data", "a.b"]


def live(kind: str, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    api_version, _, name = kind.rpartition("/")
    meta = {"name": "x", "generation": 1, **metadata}
    return {
        "apiVersion": api_version,
        "kind": name,
        "metadata": meta,
        "spec": spec or {},
        "status": status or {},
    }


def truth(type: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type, "status": status, **more}]}


UNPLACED = truth(
    "PodScheduled", "False", reason="Unschedulable", message="0/9 nodes are available: 9 taints."
)
BACKOFF = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}


@pytest.mark.parametrize(
    ("manifest", "missing", "failed"),
    [
        (live("v1/Pod", status={"phase": "Running", **truth("Ready")}), "", False),
        (live("v1/Pod", status={"phase": "Succeeded"}), "", False),
        (
            live("v1/Pod", status={"phase": "Pending", **UNPLACED}),
            "Pending: Unschedulable: 0/9 nodes are available: 9 taints.",
            False,
        ),
        (
            live(
                "v1/Pod", status={"phase": "Pending", "containerStatuses": [{"name": "c", "state": BACKOFF}]}
            ),
            "Pending: container c: ImagePullBackOff: no such image",
            False,
        ),
        (
            live(
                "v1/Pod",
                status={"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"},
            ),
            "Failed: UnexpectedAdmissionError: no GPU",
            True,
        ),
        (live("apps/v1/Deployment"), "the controller has not seen it yet", False),
        (
            live(
                "apps/v1/Deployment",
                {"replicas": 2},
                {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 2},
            ),
            "2 of 2 replicas are available",
            False,
        ),
        (
            live(
                "apps/v1/Deployment",
                {"replicas": 2},
                {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
            ),
            "",
            False,
        ),
        (
            live(
                "apps/v1/Deployment",
                {"replicas": 0},
                {"observedGeneration": 1, **truth("Progressing", "False", reason="ProgressDeadlineExceeded")},
            ),
            "ProgressDeadlineExceeded",
            True,
        ),
        (live("apps/v1/DaemonSet", status={"observedGeneration": 1, "desiredNumberScheduled": 0}), "", False),
        (
            live("apps/v1/DaemonSet", status={"observedGeneration": 1, "desiredNumberScheduled": 2}),
            "0 of 2 pods are available",
            False,
        ),
        (
            live("apps/v1/StatefulSet", {"replicas": 1}, {"observedGeneration": 1, "readyReplicas": 1}),
            "1 of 1 replicas are ready, 0 of 1 are updated",
            False,
        ),
        (live("batch/v1/Job", status=truth("Complete")), "", False),
        (live("batch/v1/Job", {"completions": 3}, {"succeeded": 1}), "1 of 3 completions", False),
        (
            live("batch/v1/Job", status=truth("Failed", reason="BackoffLimitExceeded")),
            "Failed: BackoffLimitExceeded",
            True,
        ),
        (live("v1/Service", {"clusterIP": "None"}), "", False),
        (live("v1/Service", {"type": "LoadBalancer"}), "no load balancer has been given to it", False),
        (live("v1/Namespace", status={"phase": "Active"}), "", False),
        (live("v1/Namespace", status={"phase": "Terminating"}), "it is Terminating", False),
        (live("v1/PersistentVolumeClaim", status={"phase": "Pending"}), "it is Pending", False),
        (
            live("v1/ResourceQuota", {"hard": {"pods": "1"}}, {}),
            "the controller has not counted pods yet",
            False,
        ),
        (
            live("v1/Node", status=truth("Ready", "False", reason="Down")),
            "condition Ready is not true: Down",
            False,
        ),
        (
            live("apiextensions.k8s.io/v1/CustomResourceDefinition", status=truth("Established")),
            "",
            False,
        ),
        (live("v1/ConfigMap"), "", False),
        (live("example.com/v1/Pod"), "", False),
    ],
)
def test_readiness(manifest: dict[str, Any], missing: str, failed: bool) -> None:
    state = readiness(manifest)
    assert (state.missing, state.failed) == (missing, failed)


def test_a_secrets_text_is_encoded_and_always_secret() -> None:
    token = "kubernetes:core/v1:Secret"
    inputs = manifests.normal({"stringData": {"p": "canary"}, "data": {"q": "eA=="}}, token)
    encoded = base64.b64encode(b"canary").decode()
    assert inputs == {"apiVersion": "v1", "kind": "Secret", "data": Secret({"q": "eA==", "p": encoded})}
    unknown = manifests.normal({"stringData": Secret({"p": UNKNOWN})}, token)
    assert unknown["stringData"] == Secret({"p": UNKNOWN})
    live_secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "annotations": {manifests.LAST_APPLIED: '{"data": {"p": "canary"}}'}},
        "data": {"p": encoded},
    }
    state = manifests.outputs(live_secret, {}, "m")
    assert "canary" not in repr(state)
    assert encoded not in repr(state)


def test_what_is_sent_has_no_secrets_wrapped_and_nothing_null() -> None:
    assert manifests.payload({"a": Secret({"b": None, "c": 1}), "d": [None, {"e": None}]}) == {
        "a": {"c": 1},
        "d": [None, {}],
    }


def test_an_error_shows_no_secret_and_names_field_and_remedy() -> None:
    status = {
        "message": "x",
        "details": {"causes": [{"field": "data.p", "message": 'Invalid value: "canary": too long'}]},
    }
    manifest = {"kind": "Secret", "metadata": {"name": "s", "namespace": "n"}}
    text = str(refusal(ApiError(422, status), manifest, {"data": Secret({"p": "canary"})}, "urn:x"))
    assert text == (
        'Secret n/s: the server does not change this in place: data.p: Invalid value: "[secret]": too long; '
        'undo the change, or replace the object: replace_on_changes=["data.p"] on the resource, or pulumi up '
        "--replace 'urn:x'"
    )


def test_the_dump_of_an_object_is_left_out_of_an_error() -> None:
    dump = "Invalid value: {" + "x" * 5000 + "}: field is immutable"
    status = {"message": "x", "details": {"causes": [{"field": "spec.template", "message": dump}]}}
    text = str(refusal(ApiError(422, status), {"kind": "Job", "metadata": {"name": "j"}}, {}))
    assert text == "Job j: spec.template: field is immutable"


def test_ignored_fields_are_left_to_others_and_kept_if_ours() -> None:
    def entry(fields: Any) -> dict[str, Any]:
        return {"manager": "us", "operation": "Apply", "fieldsV1": fields}

    body = {"spec": {"replicas": 1, "paused": True}}
    seen = {
        "metadata": {"managedFields": [entry({"f:spec": {"f:paused": {}}})]},
        "spec": {"replicas": 5, "paused": False},
    }
    paths = ["spec.replicas", "spec.paused", "spec.absent"]
    assert without_ignored(body, seen, "us", paths) == {"spec": {"paused": False}}
    assert body == {"spec": {"replicas": 1, "paused": True}}


CONFIG = {
    "current-context": "one",
    "clusters": [
        {"name": "c", "cluster": {"server": "https://c:1/"}},
        {"name": "d", "cluster": {"server": "https://d:2"}},
    ],
    "users": [{"name": "u", "user": {"client-certificate": "u.crt"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
        {"name": "two", "context": {"cluster": "d", "user": "u"}},
    ],
}


def test_a_kubeconfig_is_contents_a_path_or_the_environments(tmp_path: Any) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(CONFIG))
    contents = resolve({"kubeconfig": yaml.safe_dump(CONFIG)}, {})
    assert (contents.server, contents.namespace, contents.context) == ("https://c:1", "n", "one")
    path = resolve({"kubeconfig": str(file), "context": "two", "namespace": "m"}, {})
    assert (path.server, path.namespace) == ("https://d:2", "m")
    assert path.user["client-certificate"] == str(tmp_path / "u.crt")
    assert resolve({}, {"KUBECONFIG": f"{tmp_path}/none:{file}"}).server == "https://c:1"
    assert resolve({}, {"HOME": str(tmp_path)}).problem.startswith("there is no kubeconfig")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"kubeconfig": yaml.safe_dump(CONFIG), "context": "three"},
            "context 'three' is not in the kubeconfig",
        ),
        ({"kubeconfig": "a: b: canary"}, "it is not valid YAML"),
        ({"kubeconfig": "/none/such"}, "No such file or directory"),
        ({"kubeconfig": "- a\n- b\n"}, "kubeconfig: it is not a kubeconfig"),
    ],
)
def test_a_broken_kubeconfig_is_a_reason_not_a_crash(config: Any, problem: str) -> None:
    found = resolve(config, {})
    assert problem in found.problem
    assert "canary" not in found.problem
