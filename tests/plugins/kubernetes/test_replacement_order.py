"""Which of the two goes first in a replacement: the old object, or the new one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gpuform.plugins.handler import Call, Engine
from gpuform.plugins.kubernetes.cluster import Cluster, Settings
from gpuform.plugins.kubernetes.kubeconfig import Access
from gpuform.plugins.kubernetes.objects import Objects
from gpuform.plugins.properties import UNKNOWN, Secret
from tests.waiting import until

AUTO = {"annotations": {"pulumi.com/autonamed": "true"}}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("old", "new", "old_first"),
    [
        ({"name": "a", "namespace": "n"}, {"name": "a", "namespace": "n"}, True),
        ({"name": "a", "namespace": "default"}, {"name": "a"}, True),
        (Secret({"name": "a"}), {"name": "a"}, True),
        ({"name": "a", "namespace": "n"}, {"name": "b", "namespace": "n"}, False),
        ({"name": "a", "namespace": "n"}, {"name": "a", "namespace": "m"}, False),
        ({"name": "a-1", **AUTO}, {"name": "a-1", **AUTO}, False),
        ({"name": "a-1", **AUTO}, {"name": "a-1"}, True),
        ({"generateName": "a-"}, {"generateName": "a-"}, False),
        ({"name": "a"}, {"name": UNKNOWN}, False),
    ],
    ids=[
        "named",
        "default namespace",
        "secret metadata",
        "another name",
        "another namespace",
        "autonamed",
        "autonamed before",
        "named by the server",
        "not known yet",
    ],
)
def test_the_old_object_goes_first_only_where_the_new_one_needs_its_place(
    old: Any, new: Any, old_first: bool
) -> None:
    def config_map(metadata: Any, data: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": data}}

    token = "kubernetes:core/v1:ConfigMap"
    call = Call(f"urn:pulumi:s::p::{token}::cm", token, "cm", Engine(), asyncio.Event())
    objects = Objects(Cluster(Access(), Settings()))
    diffed = asyncio.run(objects.diff(call, "id", config_map(old, "x"), {}, config_map(new, "y")))
    assert "data.a" in diffed.replaces
    assert diffed.delete_before_replace is old_first


@pytest.mark.engine
@pytest.mark.cluster
def test_what_depends_on_an_object_moves_while_the_old_and_the_new_one_are_there(stack: Any) -> None:
    """As the operator's release does, which names a ConfigMap by its content."""
    source = """
named = ConfigMap("named", metadata={{"name": "named-{0}", "namespace": namespace}},
    data={{"a": "{0}"}}, opts=opts)
ConfigMap("user", metadata={{"name": "user", "namespace": namespace, "labels": {{"uses": "named-{0}"}}}},
    opts=ResourceOptions(provider=provider, depends_on=[named]))
"""
    stack.up(source.format("x"))
    path = f"/api/v1/namespaces/{stack.namespace}/configmaps"
    before = json.loads(stack.kubectl("get", "--raw", path))["metadata"]["resourceVersion"]
    stack.up(source.format("y"))
    watch = f"{path}?watch=true&timeoutSeconds=1&resourceVersion={before}"

    def order() -> list[tuple[str, str]]:
        events = [json.loads(line) for line in stack.kubectl("get", "--raw", watch).splitlines()]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]

    until(order, [("ADDED", "named-y"), ("MODIFIED", "user"), ("DELETED", "named-x")].__eq__)
    assert stack.get("configmap", "user")["metadata"]["labels"] == {"uses": "named-y"}
