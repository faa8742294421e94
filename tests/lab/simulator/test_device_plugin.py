"""What a node offers, one case per way of sharing that the sources show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.simulator import device_plugin, keys, kubelet
from lab.simulator.actions import NodeResources
from lab.simulator.world import Broken, Config

pytestmark = pytest.mark.unit


def sliced(replicas: int, rename: bool, name: str = "nvidia.com/gpu") -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "devices": "all", "replicas": replicas}
    if rename:
        entry["rename"] = f"{name}.shared"
    return {"timeSlicing": {"renameByDefault": rename, "resources": [entry]}}


def cut(*layouts: list[str] | None) -> dict[str, str]:
    placed = {str(i): layout for i, layout in enumerate(layouts) if layout is not None}
    return {keys.MIG_LAYOUT: json.dumps(placed)}


GPU_NAME, MIG_NAME = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
SEVEN = [f"1g.5gb@{i}" for i in range(7)]
CERN = ["2g.10gb@0", "2g.10gb@2", "3g.20gb@4"]
SHARED, GPU = "nvidia.com/gpu.shared", "nvidia.com/gpu"
CASES = {
    "cern_whole_t4": ({"gpu": "1eb8"}, {GPU: 1}),
    "cern_whole_v100": ({"gpu": "1db1", "count": 4}, {GPU: 4}),
    "cern_time_slicing_slice_4": (
        {"gpu": "1eb8", "sharing": sliced(4, True), "strategy": "time-slicing"},
        {SHARED: 4},
    ),
    "cern_mig_mixed": (
        {"gpu": "20b0", "annotations": cut(CERN)},
        {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 2},
    ),
    "cern_mig_none_shows_whole_gpus": ({"gpu": "20b0", "env": "none", "annotations": cut(CERN)}, {GPU: 1}),
    "cern_mig_single_shows_slices_as_gpus": (
        {"gpu": "20b0", "env": "single", "annotations": cut(SEVEN)},
        {GPU: 7},
    ),
    "bumble_all_1g5gb": ({"gpu": "20f1", "annotations": cut(SEVEN)}, {"nvidia.com/mig-1g.5gb": 7}),
    "bumble_one_of_two_gpus_cut": (
        {"gpu": "20f1", "count": 2, "annotations": cut(SEVEN)},
        {"nvidia.com/mig-1g.5gb": 7, GPU: 1},
    ),
    "cisco_time_slicing_any_not_renamed": (
        {"gpu": "1eb8", "sharing": sliced(3, False), "strategy": "time-slicing"},
        {GPU: 3},
    ),
    "nvidia_four_gpus_shared_by_four": (
        {"gpu": "1db1", "count": 4, "sharing": sliced(4, True), "strategy": "time-slicing"},
        {SHARED: 16},
    ),
    "nvidia_time_slicing_on_slices": (
        {
            "gpu": "20b0",
            "annotations": cut(SEVEN),
            "sharing": sliced(2, True, "nvidia.com/mig-1g.5gb"),
            "strategy": "time-slicing",
        },
        {"nvidia.com/mig-1g.5gb.shared": 14},
    ),
    "nvidia_two_of_four_gpus_cut_and_both_kinds_shared": (
        {
            "gpu": "20b0",
            "count": 4,
            "annotations": cut(SEVEN, SEVEN),
            "sharing": {
                "timeSlicing": {
                    "resources": [
                        {"name": GPU_NAME, "rename": f"{GPU_NAME}.shared", "replicas": 4},
                        {"name": MIG_NAME, "rename": f"{MIG_NAME}.shared", "replicas": 2},
                    ]
                }
            },
            "strategy": "time-slicing",
        },
        {"nvidia.com/gpu.shared": 8, "nvidia.com/mig-1g.5gb.shared": 28},
    ),
    "nvidia_single_and_shared_slices": (
        {
            "gpu": "20b0",
            "env": "single",
            "annotations": cut(SEVEN),
            "sharing": sliced(2, True),
            "strategy": "time-slicing",
        },
        {"nvidia.com/gpu.shared": 14},
    ),
    "nvidia_strategy_of_the_flags_where_the_operator_has_none": (
        {"gpu": "20b0", "env": "", "config": {"flags": {"migStrategy": "mixed"}}, "annotations": cut(SEVEN)},
        {"nvidia.com/mig-1g.5gb": 7},
    ),
    "nvidia_media_slice_has_a_dot": (
        {"gpu": "20b0", "annotations": cut(["1g.5gb+me@0"])},
        {"nvidia.com/mig-1g.5gb.me": 1},
    ),
    "nvidia_cut_but_empty_offers_nothing": ({"gpu": "20b0", "annotations": cut([])}, {}),
}


@pytest.mark.parametrize(("given", "expected"), CASES.values(), ids=CASES.keys())
def test_offers(make_world: Any, given: dict[str, Any], expected: dict[str, int]) -> None:
    offered = device_plugin.offered(make_world(**given))
    assert {name: len(ids) for name, ids in offered.items()} == expected
    ids = [device for devices in offered.values() for device in devices]
    assert len(set(ids)) == len(ids)


def mps(replicas: int) -> dict[str, Any]:
    return {"mps": {"resources": [{"name": GPU, "devices": "all", "replicas": replicas}]}}


def test_cisco_mps_waits_for_its_daemon(make_world: Any, make_pod: Any) -> None:
    world = make_world(gpu="1eb8", sharing=mps(3), strategy="mps", env="none")
    assert device_plugin.offered(world) == {}
    world.pods.append(make_pod("mps", "mps-control-daemon"))
    assert len(device_plugin.offered(world)[GPU]) == 3


EXITS = {
    "mps_with_mixed": (
        {"gpu": "1eb8", "sharing": mps(3), "strategy": "mps", "env": "mixed"},
        "using --mig-strategy=mixed is not supported with MPS",
    ),
    "mps_on_a_cut_gpu": (
        {"gpu": "20b0", "sharing": mps(3), "strategy": "mps", "env": "single", "annotations": cut(SEVEN)},
        "sharing using MPS is not supported for MIG devices",
    ),
    "single_with_two_profiles": (
        {"gpu": "20b0", "env": "single", "annotations": cut(CERN)},
        "more than one MIG device type present on node",
    ),
    "single_with_a_whole_gpu": (
        {"gpu": "20b0", "count": 2, "env": "single", "annotations": cut(SEVEN)},
        "all devices on the node must be configured with the same migEnabled value",
    ),
    "single_with_an_empty_gpu": (
        {"gpu": "20b0", "env": "single", "annotations": cut([])},
        "device 0 has no MIG devices configured",
    ),
}


@pytest.mark.parametrize(("given", "message"), EXITS.values(), ids=EXITS.keys())
def test_exits(make_world: Any, given: dict[str, Any], message: str) -> None:
    world = make_world(**given)
    pod = world.running("device-plugin")
    assert message in (device_plugin.problem(world, pod, world.config("device-plugin")) or "")
    assert device_plugin.offered(world) == {}


def test_strategy_of_the_environment_wins(make_world: Any) -> None:
    flags = {"flags": {"migStrategy": "none"}}
    layout = cut(CERN)
    world = make_world(gpu="20b0", env="mixed", config=flags, annotations=layout)
    assert GPU not in device_plugin.offered(world)
    alone = make_world(gpu="20b0", env="", config=flags, annotations=layout)
    assert set(device_plugin.offered(alone)) == {GPU}


def test_no_driver_no_devices(make_world: Any) -> None:
    world = make_world(operands=("device-plugin",))
    pod = world.running("device-plugin")
    assert device_plugin.problem(world, pod, Config("")) is None  # a running one has loaded it before
    pod.start = "waits"
    message = device_plugin.problem(world, pod, Config(""))
    assert message is not None
    assert "no driver on this node" in message
    world.node.annotations[keys.HOST_DRIVER] = "525.60.11"
    assert device_plugin.problem(world, pod, Config("")) is None


def test_relabelled_node_keeps_the_old_key_at_zero(make_world: Any) -> None:
    shared = sliced(4, True)
    world = make_world(sharing=shared, strategy="time-slicing", capacity={GPU: 1})
    assert kubelet.report(world) == [NodeResources({SHARED: 4}, {GPU: 0, SHARED: 4})]
    fresh = make_world(sharing=shared, strategy="time-slicing")
    assert kubelet.report(fresh) == [NodeResources({SHARED: 4}, {SHARED: 4})]


def test_operand_gone_nothing_allocatable(make_world: Any) -> None:
    world = make_world(operands=("driver", "toolkit"), capacity={GPU: 1})
    assert kubelet.report(world) == [NodeResources({}, {GPU: 0})]
    world.node.allocatable[GPU] = 0
    assert kubelet.report(world) == []
    world.expired = frozenset({GPU})
    assert kubelet.report(world) == [NodeResources({GPU: 0}, {})]


def test_nothing_to_do_writes_nothing(make_world: Any) -> None:
    assert kubelet.report(make_world(capacity={GPU: 1})) == []


SELECTED: list[tuple[str, str, list[str], str | Broken]] = [
    ("slice-4", "", ["slice-4", "whole"], "slice-4"),
    ("", "whole", ["slice-4", "whole"], "whole"),
    ("", "", ["slice-4"], ""),
    ("slice-9", "", ["slice-4"], Broken("specified config slice-9 does not exist", manager=True)),
    ("", "gone", ["slice-4"], Broken("specified config gone does not exist", manager=True)),
    ("", "", [], Broken("no configuration files available", manager=True)),
]


@pytest.mark.parametrize(("label", "default", "names", "expected"), SELECTED)
def test_select(label: str, default: str, names: list[str], expected: str | Broken) -> None:
    assert device_plugin.select(label, default, names) == expected
