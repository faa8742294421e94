"""Elastic Fabric Adapters: a node offers those it was launched with, where AWS's plugin runs."""

from __future__ import annotations

from typing import Any

import pytest

from lab.simulator import efa, keys, kubelet
from lab.simulator.actions import NodeResources
from lab.simulator.objects import node_of, pod_of

pytestmark = pytest.mark.unit

EFA = "vpc.amazonaws.com/efa"


def world(make_world: Any, pods: tuple[Any, ...] = (), had: int = 0) -> Any:
    annotations = {keys.EFA_ATTACHED: "4"}
    return make_world(gpu="", operands=(), annotations=annotations, pods=pods, capacity={EFA: had})


def test_it_offers_them_where_the_plugin_runs(make_world: Any, make_pod: Any) -> None:
    plugin = make_pod("efa", efa.OPERAND)
    assert kubelet.report(world(make_world, (plugin,))) == [NodeResources({EFA: 4}, {EFA: 4})]
    assert kubelet.report(world(make_world, (plugin,), had=4)) == []


def test_without_the_plugin_it_offers_none(make_world: Any, make_pod: Any) -> None:
    starting = make_pod("efa", efa.OPERAND, phase="Pending", ready=False)
    assert kubelet.report(world(make_world, (starting,))) == []
    assert kubelet.report(world(make_world, had=4)) == [NodeResources({}, {EFA: 0})]


def test_the_plugin_without_adapters_offers_none(make_world: Any, make_pod: Any) -> None:
    bare = make_world(gpu="", operands=(), pods=(make_pod("efa", efa.OPERAND),))
    assert kubelet.report(bare) == []


def test_a_node_keeps_its_adapters_and_a_pod_gets_no_device_for_them() -> None:
    raw = {"name": "n", "uid": "u", "resourceVersion": "1"}
    node = node_of({"metadata": raw, "status": {"capacity": {EFA: "4"}, "allocatable": {EFA: "0"}}})
    assert (node.capacity, node.allocatable) == ({EFA: 4}, {EFA: 0})
    container = {"name": "c", "image": "a:1", "resources": {"limits": {EFA: "1"}}}
    pod = {
        "metadata": {**raw, "namespace": "d", "creationTimestamp": ""},
        "spec": {"containers": [container]},
    }
    assert pod_of(pod) is None
