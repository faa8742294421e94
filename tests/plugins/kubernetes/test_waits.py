"""What is not there, not ready or not going: waits that end, messages that name what is in the way."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gpuform.engine import EngineFailure

pytestmark = [pytest.mark.engine, pytest.mark.cluster]

POD = """
Pod("p", metadata={"name": "p", "namespace": namespace, "annotations": {"pulumi.com/timeoutSeconds": "4"}},
    spec={"containers": [{"name": "c", "image": "x", "resources": {"limits": {"example.com/fpga": "1"}}}]},
    opts=opts)
"""
CRD = """
plural, kind = "widgets", "Widget"
name = "widgets.tried.gpuform.io"
crd = k8s.apiextensions.v1.CustomResourceDefinition("crd", metadata={"name": name}, spec={
    "group": "tried.gpuform.io", "scope": "Cluster",
    "names": {"plural": plural, "singular": "widget", "kind": kind},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"open_apiv3_schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}, opts=opts)
CustomResource("w", api_version="tried.gpuform.io/v1", kind=kind, metadata={"name": "w"}, spec={"size": 1},
    opts=ResourceOptions(provider=provider, depends_on=[crd]))
ns = Namespace("made", opts=opts)
ConfigMap("inside", metadata={"namespace": ns.metadata.name}, data={"uid": ns.metadata.uid}, opts=opts)
ConfigMap("beside", metadata={"name": "beside", "namespace": ns.metadata.name}, opts=opts)
"""


@pytest.mark.nightly
def test_a_pod_that_cannot_be_placed_is_kept_and_the_scheduler_is_quoted(stack: Any) -> None:
    text = stack.failure(POD)
    assert f"Pod {stack.namespace}/p: not ready after 4 s: Pending: Unschedulable: " in text
    assert "nodes" in text.partition("Unschedulable")[2]
    assert '"initErrors"' in stack.state()
    assert "Unschedulable" in stack.failure(
        POD
    )  # the next update tries again instead of calling it unchanged
    stack.engine.destroy()
    assert stack.kubectl("get", "pod", "-n", stack.namespace, "-o", "name") == ""


@pytest.mark.nightly
def test_a_deployment_says_which_pod_it_waits_for(stack: Any) -> None:
    text = stack.failure("""
Deployment("w", metadata={"name": "w", "namespace": namespace}, spec={
    "selector": {"match_labels": {"a": "w"}}, "template": {"metadata": {"labels": {"a": "w"}},
    "spec": {"node_selector": {"no": "where"}, "containers": [{"name": "c", "image": "x"}]}}},
    opts=ResourceOptions(provider=provider, custom_timeouts=pulumi.CustomTimeouts(create="5s")))
""")
    assert (
        f"Deployment {stack.namespace}/w: not ready after 5 s: 0 of 1 replicas are available; pod w-" in text
    )
    assert "is Pending: Unschedulable: " in text


@pytest.mark.nightly
def test_skip_await_does_not_wait(stack: Any) -> None:
    begun = time.monotonic()
    stack.up(POD.replace('"pulumi.com/timeoutSeconds": "4"', '"pulumi.com/skipAwait": "true"'))
    assert stack.get("pod", "p")["status"]["phase"] == "Pending"
    assert time.monotonic() - begun < 60


@pytest.mark.nightly
def test_a_finalizer_that_nobody_removes_is_named(stack: Any) -> None:
    stack.up("""
ConfigMap("held", metadata={"name": "held", "namespace": namespace, "finalizers": ["tried.io/hold"],
    "annotations": {"pulumi.com/timeoutSeconds": "3"}}, opts=opts)
""")
    text = stack.failure("")
    assert f"ConfigMap {stack.namespace}/held: still there after 3 s: held by finalizer tried.io/hold" in text
    patch = json.dumps({"metadata": {"finalizers": None}})
    stack.kubectl("patch", "configmap", "held", "-n", stack.namespace, "--type=merge", "-p", patch)
    assert stack.up("").changes["same"] >= 1
    assert "::held" not in stack.state()


def test_objects_whose_kind_or_namespace_the_same_update_makes(stack: Any) -> None:
    planned = stack.preview(CRD)
    assert planned.changes == {"create": 7}
    assert [m.text for m in planned.messages if m.severity in ("warning", "error")] == []
    assert stack.up(CRD).changes == {"create": 7}
    assert stack.up(CRD).changes == {"same": 7}
    assert stack.engine.destroy().changes == {"delete": 7}
    assert "widgets" not in stack.kubectl("get", "crd", "-o", "name")


@pytest.mark.nightly
def test_a_kind_that_never_comes_is_an_error(stack: Any) -> None:
    text = stack.failure("""
CustomResource("w", api_version="none.gpuform.io/v1", kind="Nothing", metadata={"name": "w"}, opts=opts)
""")
    assert "Nothing w: the server knows no kind Nothing in none.gpuform.io/v1" in text
    assert "install its CustomResourceDefinition first" in text


@pytest.mark.nightly
def test_a_job_that_fails_is_an_error_at_once(stack: Any, node: str) -> None:
    source = """
containers = [{"name": "c", "image": "x"}]
pod = {"restart_policy": "Never", "node_selector": {"no": "where"}, "containers": containers}
Job("j", metadata={"name": "j", "namespace": namespace}, opts=opts,
    spec={"backoff_limit": 0, "active_deadline_seconds": 1, "template": {"spec": pod}})
"""
    text = stack.failure(source)
    assert f"Job {stack.namespace}/j: Failed: DeadlineExceeded: " in text


@pytest.mark.nightly
def test_without_a_cluster_a_preview_works_and_says_so_and_an_up_does_not(stack: Any) -> None:
    source = 'ConfigMap("cm", metadata={"name": "cm"}, data={"a": "b"}, opts=opts)'
    nowhere = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
    stack.program(source, nowhere)
    planned = stack.engine.preview()
    assert planned.changes == {"create": 3}
    warnings = [message.text for message in planned.messages if message.severity == "warning"]
    assert len([text for text in warnings if "cluster is unreachable: https://127.0.0.1:1" in text]) == 1
    assert any("the preview shows what the program says" in text for text in warnings)
    with pytest.raises(EngineFailure) as caught:
        stack.engine.up()
    errors = "\n".join(caught.value.result.errors)
    assert "configured Kubernetes cluster is unreachable: https://127.0.0.1:1" in errors


@pytest.mark.nightly
def test_another_cluster_replaces_everything_another_path_to_it_nothing(stack: Any, tmp_path: Any) -> None:
    source = 'ConfigMap("cm", metadata={"name": "cm", "namespace": namespace}, opts=opts)'
    stack.up(source)
    copied = tmp_path / "copied-kubeconfig"
    copied.write_text(stack.kubeconfig.read_text())
    stack.program(source, str(copied))
    assert stack.engine.preview().changes == {"same": 2, "update": 1}
    other = stack.kubeconfig.read_text().replace("127.0.0.1", "localhost")
    copied.write_text(other)
    stack.program(source, other)
    assert stack.engine.preview().changes["replace"] == 2
