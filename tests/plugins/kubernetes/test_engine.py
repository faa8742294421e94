"""Programs run by the real engine through the stand-in, on a real API server."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.cluster]

LIFE = """
labels = {{"step": "{step}"}}
cm = ConfigMap("cm", metadata={{"namespace": namespace, "labels": labels}}, data={{"a": "{data}"}}, opts=opts)
svc = Service("svc", metadata={{"name": "svc", "namespace": namespace}},
    spec={{"selector": {{"a": "w"}}, "ports": [{{"port": 80}}], "cluster_ip": "None"}}, opts=opts)
d = Deployment("w", metadata={{"namespace": namespace}}, spec={{
    "replicas": {replicas}, "selector": {{"match_labels": {{"a": "w"}}}},
    "template": {{"metadata": {{"labels": {{"a": "w"}}}},
        "spec": {{"containers": [
            {{"name": "c", "image": "x", "resources": {{"limits": {{"cpu": "1000m"}}}}}}]}}}}}},
    opts=opts)
pulumi.export("cm", cm.metadata.name)
pulumi.export("available", d.status.available_replicas)
"""


def test_up_noop_change_refresh_destroy(stack: Any, node: str) -> None:
    first = LIFE.format(step=1, data="x", replicas=1)
    assert stack.up(first).changes["create"] == 5  # the stack, the provider and three objects
    outputs = stack.engine.outputs()
    assert outputs["available"] == 1
    assert stack.up(first).changes == {"same": 5}
    before = stack.get("configmap", outputs["cm"])
    assert stack.engine.refresh().changes == {"same": 5}
    assert stack.get("configmap", outputs["cm"]) == before
    assert stack.up(first).changes == {"same": 5}

    changed = stack.up(LIFE.format(step=2, data="x", replicas=2))
    assert changed.changes == {"same": 3, "update": 2}
    name = outputs["cm"]
    assert stack.get("configmap", name)["metadata"]["labels"] == {"step": "2"}

    replaced = stack.up(LIFE.format(step=2, data="y", replicas=2))
    assert replaced.changes["replace"] == 1
    fresh = stack.engine.outputs()["cm"]
    assert fresh != name
    assert stack.get("configmap", fresh)["data"] == {"a": "y"}
    assert f"configmap/{name}" not in stack.kubectl("get", "configmap", "-n", stack.namespace, "-o", "name")

    assert stack.engine.destroy().changes["delete"] == 5
    assert stack.kubectl("get", "deploy,svc", "-n", stack.namespace, "-o", "name") == ""


@pytest.mark.nightly
def test_an_autonamed_object_is_made_before_the_old_one_goes_and_a_named_one_after(stack: Any) -> None:
    source = """
auto = ConfigMap("auto", metadata={{"namespace": namespace}}, data={{"a": "{0}"}}, opts=opts)
named = ConfigMap("named", metadata={{"name": "named", "namespace": namespace}},
    data={{"a": "{0}"}}, opts=opts)
"""
    stack.up(source.format("x"))
    result = stack.up(source.format("y"))
    order = [
        (step.name, step.op)
        for step in result.steps
        if step.phase == "done" and step.name in ("auto", "named")
    ]
    created, deleted = order.index(("auto", "create-replacement")), order.index(("auto", "delete-replaced"))
    assert created < deleted
    created, deleted = order.index(("named", "create-replacement")), order.index(("named", "delete-replaced"))
    assert deleted < created
    assert stack.get("configmap", "named")["data"] == {"a": "y"}


def test_secrets_are_in_the_cluster_and_never_in_the_state(stack: Any) -> None:
    stack.up("""
Secret("marked", metadata={"name": "marked", "namespace": namespace},
    string_data={"p": Output.secret("canary-one")}, opts=opts)
Secret("unmarked", metadata={"name": "unmarked", "namespace": namespace},
    string_data={"p": "canary-two"}, opts=opts)
ConfigMap("part", metadata={"name": "part", "namespace": namespace},
    data={"p": Output.secret("canary-three"), "q": "open"}, opts=opts)
""")
    assert base64.b64decode(stack.get("secret", "marked")["data"]["p"]) == b"canary-one"
    assert stack.get("configmap", "part")["data"]["p"] == "canary-three"
    state = stack.state()
    assert "canary" not in state
    assert base64.b64encode(b"canary-two").decode() not in state
    assert '"q": "open"' in state
    log = stack.folder / ".gpuform" / "logs"
    assert all("canary" not in file.read_text() for file in log.glob("*.log"))


@pytest.mark.nightly
def test_an_object_of_somebody_else_is_an_error_that_says_how_to_import_it(stack: Any) -> None:
    stack.kubectl("create", "configmap", "theirs", "-n", stack.namespace, "--from-literal=a=b")
    source = """
ConfigMap("mine", metadata={"name": "theirs", "namespace": namespace}, data={"a": "c"}, opts=opts)
"""
    text = stack.failure(source)
    id = f"{stack.namespace}/theirs"
    assert f"ConfigMap {id}: it already exists" in text
    assert f"pulumi import kubernetes:core/v1:ConfigMap mine {id}" in text
    assert stack.get("configmap", "theirs")["data"] == {"a": "b"}
    warned = [message.text for message in stack.preview(source).messages if message.severity == "warning"]
    assert any("it already exists" in text for text in warned)


@pytest.mark.nightly
def test_an_import_takes_the_object_as_it_is(stack: Any) -> None:
    stack.kubectl("create", "configmap", "theirs", "-n", stack.namespace, "--from-literal=a=b")
    source = """
ConfigMap("mine", metadata={{"name": "theirs", "namespace": namespace}}, data={{"a": "b"}},
    opts=ResourceOptions(provider=provider{0}))
"""
    id = f"{stack.namespace}/theirs"
    assert stack.up(source.format(f", import_={id!r}")).changes["import"] == 1
    assert stack.up(source.format("")).changes == {"same": 3}
    stack.engine.destroy()
    assert "theirs" not in stack.kubectl("get", "configmap", "-n", stack.namespace, "-o", "name")


@pytest.mark.nightly
def test_what_an_own_killed_create_left_is_taken_over(stack: Any) -> None:
    source = """
ConfigMap("cm", metadata={"name": "cm", "namespace": namespace}, data={"a": "b"}, opts=opts)
"""
    stack.up(source)
    uid = stack.get("configmap", "cm")["metadata"]["uid"]
    stack.forget("cm")
    assert stack.up(source).changes["create"] == 1
    assert stack.get("configmap", "cm")["metadata"]["uid"] == uid


@pytest.mark.nightly
def test_a_field_of_another_manager_is_an_error_that_names_both(stack: Any) -> None:
    source = """
ConfigMap("cm", metadata={{"name": "cm", "namespace": namespace, "labels": {{"who": "{0}"}}{1}}}, opts=opts)
"""
    stack.up(source.format("me", ""))
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": stack.namespace, "labels": {"who": "them"}},
    }
    stack.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--field-manager=them", "-f", "-"),
        input=json.dumps(theirs),
    )
    for text in (stack.preview_failure(source.format("us", "")), stack.failure(source.format("us", ""))):
        assert '.metadata.labels.who is managed by "them"' in text
        assert 'pulumi.com/patchForce: "true"' in text
    stack.up(source.format("us", ', "annotations": {"pulumi.com/patchForce": "true"}'))
    assert stack.get("configmap", "cm")["metadata"]["labels"] == {"who": "us"}


@pytest.mark.nightly
def test_a_change_that_the_server_forbids_is_an_error_in_preview_too(stack: Any) -> None:
    source = 'RuntimeClass("rc", metadata={{"name": "tried"}}, handler="{0}", opts=opts)'
    stack.up(source.format("one"))
    for text in (stack.preview_failure(source.format("two")), stack.failure(source.format("two"))):
        assert "RuntimeClass tried: the server does not change this in place: handler: " in text
        assert 'replace_on_changes=["handler"]' in text
    stack.engine.destroy()


@pytest.mark.nightly
def test_a_priority_class_with_another_value_is_another_one(stack: Any) -> None:
    source = 'PriorityClass("pc", metadata={{"name": "tried-low"}}, value={0}, opts=opts)'
    stack.up(source.format(-10))
    stack.up(source.format(-20))
    assert stack.get("priorityclass", "tried-low")["value"] == -20
    stack.engine.destroy()


@pytest.mark.nightly
def test_drift_shows_after_a_refresh_and_up_mends_it(stack: Any) -> None:
    source = """
ConfigMap("cm", metadata={"name": "cm", "namespace": namespace, "labels": {"a": "b"}}, opts=opts)
ConfigMap("gone", metadata={"name": "gone", "namespace": namespace}, opts=opts)
"""
    stack.up(source)
    stack.kubectl(
        "label", "configmap", "cm", "-n", stack.namespace, "a=z", "--overwrite", "--field-manager=x"
    )
    stack.kubectl("delete", "configmap", "gone", "-n", stack.namespace)
    refreshed = stack.engine.refresh()
    assert refreshed.changes.get("update") == 1
    assert refreshed.changes.get("delete") == 1
    # The other manager lets go of the field; as long as it does not, its value is a conflict.
    stack.kubectl("label", "configmap", "cm", "-n", stack.namespace, "a-", "--field-manager=x")
    result = stack.up(source)
    assert result.changes["create"] == 1
    assert result.changes["update"] == 1
    assert stack.get("configmap", "cm")["metadata"]["labels"] == {"a": "b"}


@pytest.mark.nightly
def test_patches_touch_only_their_fields_and_take_them_off_again(stack: Any, node: str) -> None:
    source = """
NodePatch("n", metadata={{"name": {node!r}, "labels": {{"tried/pool": "{value}"}}}}, opts=opts)
"""
    stack.up(source.format(node=node, value="a"))
    stack.up(source.format(node=node, value="b"))
    assert stack.get("node", node)["metadata"]["labels"]["tried/pool"] == "b"
    stack.engine.destroy()
    assert "tried/pool" not in json.dumps(stack.get("node", node)["metadata"])


@pytest.mark.nightly
def test_ignored_changes_leave_a_field_to_its_other_manager(stack: Any, node: str) -> None:
    source = """
Deployment("w", metadata={{"name": "w", "namespace": namespace, "labels": {{"step": "{step}"}}}}, spec={{
    "replicas": 1, "selector": {{"match_labels": {{"a": "w"}}}},
    "template": {{"metadata": {{"labels": {{"a": "w"}}}},
        "spec": {{"containers": [{{"name": "c", "image": "x"}}]}}}}}},
    opts=ResourceOptions(provider=provider, ignore_changes=["spec.replicas"]))
"""
    stack.up(source.format(step=1))
    stack.kubectl("scale", "deploy", "w", "-n", stack.namespace, "--replicas=2")
    stack.up(source.format(step=2))
    live = stack.get("deploy", "w")
    assert live["spec"]["replicas"] == 2
    assert live["metadata"]["labels"] == {"step": "2"}
