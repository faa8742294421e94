"""What a node offers, and what a restart keeps (row 22).

tests/checks/test_drawn_environments.py compares the same with the plan, for any way of sharing.
"""

from __future__ import annotations

from typing import Any

import pytest

from lab.simulator import device_plugin, keys, kubelet
from lab.simulator.actions import Annotate, NodeResources, Reject
from lab.simulator.objects import parse_node, parse_pod
from lab.simulator.world import BrokenConfig, Config
from tests.lab.simulator.worlds import CERN, GPU, MIG, SEVEN, SHARED, cut, make_pod, make_world, mps, sliced

pytestmark = pytest.mark.unit

EFA = "vpc.amazonaws.com/efa"
BOTH = [
    {"name": GPU, "rename": SHARED, "replicas": 4},
    {"name": MIG, "rename": f"{MIG}.shared", "replicas": 2},
]
CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "cern_time_slicing_slice_4": ({"gpu": "1eb8", **sliced(4)}, {SHARED: 4}),
    "cern_mig_none_shows_whole_gpus": ({"gpu": "20b0", "env": "none", "annotations": cut(CERN)}, {GPU: 1}),
    "bumble_one_of_two_gpus_cut": ({"gpu": "20f1", "count": 2, "annotations": cut(SEVEN)}, {MIG: 7, GPU: 1}),
    "cisco_time_slicing_any_not_renamed": ({"gpu": "1eb8", **sliced(3, rename=False)}, {GPU: 3}),
    "nvidia_two_of_four_gpus_cut_and_both_kinds_shared": (
        {
            **{"gpu": "20b0", "count": 4, "annotations": cut(SEVEN, SEVEN), "strategy": "time-slicing"},
            "sharing": {"timeSlicing": {"resources": BOTH}},
        },
        {SHARED: 8, f"{MIG}.shared": 28},
    ),
    "nvidia_strategy_of_the_flags_where_the_operator_has_none": (
        {"gpu": "20b0", "env": "", "config": {"flags": {"migStrategy": "mixed"}}, "annotations": cut(SEVEN)},
        {MIG: 7},
    ),
    "strategy_of_the_environment_wins": (
        {"gpu": "20b0", "config": {"flags": {"migStrategy": "none"}}, "annotations": cut(SEVEN)},
        {MIG: 7},
    ),
    "nvidia_media_slice_has_a_dot": (
        {"gpu": "20b0", "annotations": cut(["1g.5gb+me@0"])},
        {"nvidia.com/mig-1g.5gb.me": 1},
    ),
    "nvidia_cut_but_empty_offers_nothing": ({"gpu": "20b0", "annotations": cut([])}, {}),
    "cisco_mps_waits_for_its_daemon": ({"gpu": "1eb8", **mps(3)}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_offers(case: str) -> None:
    given, expected = CASES[case]
    offered = device_plugin.offered_devices(make_world(**given))
    assert {name: len(ids) for name, ids in offered.items()} == expected
    ids = [device for devices in offered.values() for device in devices]
    assert len(set(ids)) == len(ids)


EXITS: list[tuple[dict[str, Any], str]] = [
    ({"gpu": "1eb8", **mps(3, "mixed")}, "using --mig-strategy=mixed is not supported with MPS"),
    (
        {"gpu": "20b0", **mps(3, "single"), "annotations": cut(SEVEN)},
        "sharing using MPS is not supported for MIG devices",
    ),
    (
        {"gpu": "20b0", "env": "single", "annotations": cut(CERN)},
        "more than one MIG device type present on node",
    ),
    (
        {"gpu": "20b0", "count": 2, "env": "single", "annotations": cut(SEVEN)},
        "all devices on the node must be configured with the same migEnabled value",
    ),
    ({"gpu": "20b0", "env": "single", "annotations": cut([])}, "device 0 has no MIG devices configured"),
]


@pytest.mark.parametrize(("given", "message"), EXITS)
def test_exits(given: dict[str, Any], message: str) -> None:
    world = make_world(**given)
    pod = world.running("device-plugin")
    assert pod
    assert message in (
        device_plugin.exit_message(world, pod, world.config("device-plugin") or Config("")) or ""
    )
    assert device_plugin.offered_devices(world) == {}


def test_no_driver_no_devices() -> None:
    world = make_world(operands=("device-plugin",))
    pod = world.running("device-plugin")
    assert pod
    assert device_plugin.exit_message(world, pod, Config("")) is None  # a running one has loaded it before
    pod.start = "waits"
    assert "no driver on this node" in (device_plugin.exit_message(world, pod, Config("")) or "")
    world.node.annotations[keys.HOST_DRIVER] = "525.60.11"
    assert device_plugin.exit_message(world, pod, Config("")) is None


def test_what_is_no_longer_offered_is_left_at_zero() -> None:
    assert kubelet.report_resources(make_world(capacity={GPU: 1})) == []
    relabelled = make_world(**sliced(4), capacity={GPU: 1})
    assert kubelet.report_resources(relabelled) == [NodeResources({SHARED: 4}, {GPU: 0, SHARED: 4})]
    assert kubelet.report_resources(make_world(**sliced(4))) == [NodeResources({SHARED: 4}, {SHARED: 4})]
    world = make_world(operands=("driver", "toolkit"), capacity={GPU: 1})
    assert kubelet.report_resources(world) == [NodeResources({}, {GPU: 0})]
    world.node.allocatable[GPU] = 0
    assert kubelet.report_resources(world) == []
    world.expired = frozenset({GPU})
    assert kubelet.report_resources(world) == [NodeResources({GPU: 0}, {})]


SELECTED: list[tuple[str, str, list[str], str | BrokenConfig]] = [
    ("slice-4", "", ["slice-4", "whole"], "slice-4"),
    ("", "whole", ["slice-4", "whole"], "whole"),
    ("", "", ["slice-4"], ""),
    ("slice-9", "", ["slice-4"], BrokenConfig("specified config slice-9 does not exist", manager=True)),
    ("", "gone", ["slice-4"], BrokenConfig("specified config gone does not exist", manager=True)),
    ("", "", [], BrokenConfig("no configuration files available", manager=True)),
]


@pytest.mark.parametrize(("label", "default", "names", "expected"), SELECTED)
def test_select(label: str, default: str, names: list[str], expected: str | BrokenConfig) -> None:
    assert device_plugin.select_config(label, default, names) == expected


RESTARTS: dict[str, tuple[dict[str, Any], str]] = {
    "whole": ({"gpu": "1db1", "count": 4}, GPU),
    "time_slicing": ({"gpu": "1eb8", "count": 2, **sliced(2)}, SHARED),
    "mig": (
        {"gpu": "20b7", "annotations": cut(["1g.6gb@0", "1g.6gb@1", "2g.12gb@2"])},
        "nvidia.com/mig-1g.6gb",
    ),
}


@pytest.mark.parametrize("case", RESTARTS)
def test_nvidia_zero_downtime_re_registration(case: str) -> None:
    given, resource = RESTARTS[case]
    world = make_world(**given)
    before = device_plugin.offered_devices(world)
    every = before[resource]
    holds = make_pod("holds", asks={resource: 1}, devices=every[0])
    capacity = {name: len(ids) for name, ids in before.items()}

    away = make_world(**given, operands=("driver", "toolkit"), capacity=capacity, pods=(holds,))
    assert kubelet.report_resources(away) == [NodeResources({}, dict.fromkeys(capacity, 0))]
    assert kubelet.act(away) == []  # running pods are not touched

    late = make_pod("late", asks={resource: 1}, phase="Pending")
    unlucky = make_world(**given, operands=("driver",), capacity=capacity, pods=(holds, late))
    (refused,) = kubelet.act(unlucky)
    assert isinstance(refused, Reject)
    assert refused.pod is late

    rest = tuple(make_pod(f"next-{n}", asks={resource: 1}, phase="Pending") for n in range(len(every)))
    back = make_world(**given, capacity=capacity, pods=(holds, *rest))
    back.node.allocatable = dict.fromkeys(capacity, 0)
    assert kubelet.report_resources(back) == [NodeResources({}, capacity)]
    assert device_plugin.offered_devices(back) == before
    *admitted, too_many = kubelet.act(back)
    given_out = [a.annotations[keys.DEVICES] for a in admitted if isinstance(a, Annotate)]
    assert sorted(given_out) == sorted(set(every) - {every[0]})
    assert isinstance(too_many, Reject)
    assert "Available: 0" in too_many.message


EFA_NODE: dict[str, Any] = {"gpu": "", "operands": (), "annotations": {keys.EFA_ATTACHED: "4"}}


def test_efa_is_offered_only_where_its_plugin_runs() -> None:
    plugin = make_pod("efa", device_plugin.EFA_PLUGIN)
    starting = make_pod("efa", device_plugin.EFA_PLUGIN, phase="Pending", ready=False)

    def report(*pods: Any, had: int = 0, **more: Any) -> list[Any]:
        return kubelet.report_resources(make_world(**{**EFA_NODE, **more}, pods=pods, capacity={EFA: had}))

    assert report(plugin) == [NodeResources({EFA: 4}, {EFA: 4})]
    assert (report(plugin, had=4), report(starting), report(plugin, annotations={})) == ([], [], [])
    assert report(had=4) == [NodeResources({}, {EFA: 0})]


def test_a_node_keeps_its_adapters_and_a_pod_gets_no_device_for_them() -> None:
    raw = {"name": "n", "uid": "u", "resourceVersion": "1"}
    node = parse_node({"metadata": raw, "status": {"capacity": {EFA: "4"}, "allocatable": {EFA: "0"}}})
    assert (node.capacity, node.allocatable) == ({EFA: 4}, {EFA: 0})
    container = {"name": "c", "image": "a:1", "resources": {"limits": {EFA: "1"}}}
    meta = {**raw, "namespace": "d", "creationTimestamp": ""}
    assert parse_pod({"metadata": meta, "spec": {"containers": [container]}}) is None
