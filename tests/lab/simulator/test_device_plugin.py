"""What a node offers, which pod gets which device, how one is rejected; restarts, faulty GPUs (row 22).

tests/checks/test_drawn_environments.py compares what is offered with the plan, for any way of sharing.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from lab.simulator import device_plugin, keys, kubelet, operands
from lab.simulator.actions import Annotate, NodeResources, Reject
from lab.simulator.objects import parse_node, parse_pod
from lab.simulator.world import BrokenConfig, Config
from tests.lab.simulator.worlds import CERN, GPU, MIG, SEVEN, SHARED, cut, make_pod, make_world, mps, sliced

pytestmark = pytest.mark.unit

EFA = "vpc.amazonaws.com/efa"
BOTH = [{"name": name, "rename": f"{name}.shared", "replicas": count} for name, count in ((GPU, 4), (MIG, 2))]
CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "cern_time_slicing_slice_4": (sliced(4), {SHARED: 4}),
    "cern_mig_none_shows_whole_gpus": ({"gpu": "20b0", "env": "none", "annotations": cut(CERN)}, {GPU: 1}),
    "bumble_one_of_two_gpus_cut": ({"gpu": "20f1", "count": 2, "annotations": cut(SEVEN)}, {MIG: 7, GPU: 1}),
    "cisco_time_slicing_any_not_renamed": (sliced(3, rename=False), {GPU: 3}),
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
    "cisco_mps_waits_for_its_daemon": (mps(3), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_offers(case: str) -> None:
    given, expected = CASES[case]
    offered = device_plugin.offered_devices(make_world(**given))
    assert {name: len(ids) for name, ids in offered.items()} == expected
    ids = [device for devices in offered.values() for device in devices]
    assert len(set(ids)) == len(ids)


SINGLE: dict[str, Any] = {"gpu": "20b0", "env": "single"}
EXITS: list[tuple[dict[str, Any], str]] = [
    (mps(3, "mixed"), "using --mig-strategy=mixed is not supported with MPS"),
    ({"annotations": cut(SEVEN), "gpu": "20b0", **mps(3, "single")}, "MPS is not supported for MIG devices"),
    ({"annotations": cut(CERN), **SINGLE}, "more than one MIG device type present on node"),
    (
        {"annotations": cut(SEVEN), "count": 2, **SINGLE},
        "all devices on the node must be configured with the same migEnabled value",
    ),
    ({"annotations": cut([]), **SINGLE}, "device 0 has no MIG devices configured"),
]


@pytest.mark.parametrize(("given", "message"), EXITS)
def test_the_plugin_exits(given: dict[str, Any], message: str) -> None:
    world = make_world(**given)
    (pod,) = world.pods_of("device-plugin")
    config = world.config("device-plugin")
    assert config
    assert message in (device_plugin.exit_message(world, pod, config) or "")
    assert device_plugin.offered_devices(world) == {}


def test_no_driver_no_devices() -> None:
    world = make_world(operands=("device-plugin",))
    (pod,) = world.pods_of("device-plugin")
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
def test_a_configuration_is_selected(
    label: str, default: str, names: list[str], expected: str | BrokenConfig
) -> None:
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
    plugin = make_pod("efa-1", device_plugin.EFA_PLUGIN)
    starting = make_pod("efa-1", device_plugin.EFA_PLUGIN, phase="Pending", ready=False)

    def efa(*pods: Any, had: int = 0, **more: Any) -> list[Any]:
        return kubelet.report_resources(make_world(**{**EFA_NODE, **more}, pods=pods, capacity={EFA: had}))

    assert efa(plugin) == [NodeResources({EFA: 4}, {EFA: 4})]
    assert (efa(plugin, had=4), efa(starting), efa(plugin, annotations={})) == ([], [], [])
    assert efa(had=4) == [NodeResources({}, {EFA: 0})]


def test_a_node_keeps_its_adapters_and_a_pod_gets_no_device_for_them() -> None:
    raw = {"name": "n", "uid": "u", "resourceVersion": "1"}
    node = parse_node({"metadata": raw, "status": {"capacity": {EFA: "4"}, "allocatable": {EFA: "0"}}})
    assert (node.capacity, node.allocatable) == ({EFA: 4}, {EFA: 0})
    container = {"name": "c", "image": "a:1", "resources": {"limits": {EFA: "1"}}}
    meta = {**raw, "namespace": "d", "creationTimestamp": ""}
    assert parse_pod({"metadata": meta, "spec": {"containers": [container]}}) is None


@pytest.mark.parametrize("plugin", [True, False])
def test_rdma_is_offered_while_its_plugin_runs_unless_another_one_offers_it(plugin: bool) -> None:
    name = "rdma/rdma_shared_device_a"
    offered = json.dumps({"resource": name, "count": 63, "plugin": plugin})
    node = {**EFA_NODE, "annotations": {keys.RDMA_OFFERED: offered}}
    pods = (make_pod("rdma-1", device_plugin.RDMA_PLUGIN),)
    here = [NodeResources({name: 63}, {name: 63})]
    assert kubelet.report_resources(make_world(**node, pods=pods, capacity={name: 0})) == here
    gone = kubelet.report_resources(make_world(**node, pods=(), capacity={name: 63}))
    assert gone == ([NodeResources({}, {name: 0})] if plugin else [])


STRICT = sliced(4, failRequestsGreaterThanOne=True)


def waiting(count: int = 1, resource: str = GPU, **fields: Any) -> Any:
    return make_pod(asks={resource: count}, phase="Pending", **fields)


def given(*pods: Any, **world: Any) -> dict[str, list[str]]:
    actions = kubelet.act(make_world(**world, pods=pods))
    assert all(isinstance(action, Annotate) for action in actions), actions
    return {a.pod.name: a.annotations[keys.DEVICES].split(",") for a in actions}


DEVICE = device_plugin.offered_devices(make_world())[GPU][0]
ONE_EACH = (
    "Allocate failed due to rpc error: code = Unknown desc = invalid allocation request for "
    '"{}": invalid request: maximum request size for shared resources is 1; found 2, which is unexpected'
)
NONE_LEFT = (
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
    "Requested: 1, Available: 0, which is unexpected"
)
UNHEALTHY = (
    "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, "
    "which is unexpected"
)
SLICE = "nvidia.com/mig-3g.20gb"
REFUSED: dict[str, tuple[dict[str, Any], list[Any], str, str]] = {
    "cern_two_slices_of_one_gpu": (STRICT, [waiting(2, SHARED)], "", ONE_EACH.format(SHARED)),
    "cisco_mps_never_gives_two": (
        mps(3), [make_pod("d", "mps-control-daemon"), waiting(2)], "", ONE_EACH.format(GPU)
    ),
    "a pod that terminates holds its device": (
        {}, [make_pod("leaving", asks={GPU: 1}, devices=DEVICE, deleting=True), waiting()], "", NONE_LEFT
    ),
    "the plugin is away": ({"operands": (), "capacity": {GPU: 1}}, [waiting()], "", UNHEALTHY),
    "a resource that was never there": (
        {},
        [waiting(resource=SLICE)],
        f"OutOf{SLICE}",
        f"Node didn't have enough resource: {SLICE}, requested: 1, used: 0, capacity: 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_the_kubelets_words(case: str) -> None:
    world, pods, reason, message = REFUSED[case]
    (action,) = kubelet.act(make_world(**world, pods=tuple(pods)))
    assert action == Reject(pods[-1], reason or "UnexpectedAdmissionError", f"Pod was rejected: {message}")


def test_replicas_are_spread_over_the_gpus() -> None:
    pods = (waiting(resource=SHARED, name=f"p{i}") for i in range(4))
    result = given(*pods, gpu="1db1", count=4, **STRICT)
    parents = Counter(device.partition("::")[0] for ids in result.values() for device in ids)
    assert sorted(parents.values()) == [1, 1, 1, 1]


def test_oldest_pod_first_and_none_left_for_the_last() -> None:
    young = waiting(name="a-young", created="2024-10-15T11:42:00Z")
    old = waiting(name="z-old")
    first, second = kubelet.act(make_world(pods=(young, old)))
    assert isinstance(first, Annotate)
    assert first.pod is old
    assert second == Reject(young, "UnexpectedAdmissionError", f"Pod was rejected: {NONE_LEFT}")


def test_finished_pod_gives_its_device_back_and_an_admitted_one_is_left_alone() -> None:
    done = make_pod("done", asks={GPU: 1}, phase="Succeeded", devices=DEVICE)
    assert given(done, waiting()) == {"tf-gpu": [DEVICE]}
    assert given(make_pod(asks={GPU: 1}, devices="GPU-1")) == {}


def test_init_container_shares_with_the_main_one() -> None:
    pod = make_pod(phase="Pending", requests=(("i", True, ((GPU, 2),)), ("c", False, ((GPU, 1),))))
    assert len(given(pod, gpu="1db1", count=4)["tf-gpu"]) == 2


def sick(which: str, *layouts: list[str] | None) -> dict[str, Any]:
    return {"annotations": {**cut(*layouts), keys.UNHEALTHY: which}}


def report(world: Any) -> tuple[dict[str, int], dict[str, int]]:
    (action,) = kubelet.report_resources(world)
    assert isinstance(action, NodeResources)
    return action.capacity, action.allocatable


def test_nvidia_three_gpus_one_unhealthy() -> None:
    assert report(make_world(count=3, **sick("2"))) == ({GPU: 3}, {GPU: 2})


PAIR: dict[str, Any] = {"gpu": "20b0", "count": 2}
TAKES_WITH_IT: dict[str, tuple[dict[str, Any], dict[str, int], dict[str, int]]] = {
    "nothing where none is sick": ({"count": 3}, {GPU: 3}, {GPU: 3}),
    "nothing where no GPU has that name": ({"count": 3, **sick("7, nonsense")}, {GPU: 3}, {GPU: 3}),
    "replicas": ({"count": 3, **sick("0,1"), **sliced(4)}, {SHARED: 12}, {SHARED: 4}),
    "slices": ({**PAIR, **sick("0", SEVEN)}, {GPU: 1, MIG: 7}, {GPU: 1, MIG: 0}),
    "replicas of slices": (
        {**PAIR, **sick("1", SEVEN, SEVEN), **sliced(2, MIG)},
        {f"{MIG}.shared": 28},
        {f"{MIG}.shared": 14},
    ),
}


@pytest.mark.parametrize("case", TAKES_WITH_IT)
def test_a_sick_gpu_takes_with_it(case: str) -> None:
    given, capacity, allocatable = TAKES_WITH_IT[case]
    assert report(make_world(**given)) == (capacity, allocatable)


def test_one_mig_device_by_its_uuid() -> None:
    one = device_plugin.mig_uuid(make_world(), 0, "1g.5gb", 3)
    assert report(make_world(gpu="20b0", **sick(one, SEVEN))) == ({MIG: 7}, {MIG: 6})


def test_a_new_pod_does_not_get_it_and_its_holder_keeps_it() -> None:
    first, second, third = (device_plugin.gpu_uuid(make_world(), index) for index in range(3))
    has = make_pod("has", asks={GPU: 1}, devices=third)
    new, late = (make_pod(name, asks={GPU: 2}, phase="Pending") for name in ("new", "too-late"))
    given, refused = kubelet.act(make_world(count=3, **sick("2"), pods=(has, new, late)))
    assert isinstance(refused, Reject)
    assert "Requested: 2, Available: 0" in refused.message
    assert isinstance(given, Annotate)
    assert (given.pod, given.annotations) == (new, {keys.DEVICES: f"{first},{second}"})


def test_the_plugin_never_takes_a_device_back_until_it_starts_again() -> None:
    (noted,) = device_plugin.act(make_world(count=3, **sick("2")))
    assert isinstance(noted, Annotate)
    assert noted.pod.operand == "device-plugin"
    well = make_world(count=3)
    plugin = well.running("device-plugin")
    plugin.unhealthy = noted.annotations[keys.UNHEALTHY]
    assert (report(well), device_plugin.act(well)) == (({GPU: 3}, {GPU: 2}), [])
    plugin.unhealthy = ""  # as in a new pod
    assert report(well) == ({GPU: 3}, {GPU: 3})


def test_the_note_grows_and_another_configuration_forgets_it() -> None:
    world = make_world(count=3, **sick("1"))
    plugin = world.running("device-plugin")
    plugin.unhealthy = device_plugin.gpu_uuid(world, 2)
    (noted,) = device_plugin.act(world)
    both = sorted(device_plugin.gpu_uuid(world, index) for index in (1, 2))
    assert noted.annotations == {keys.UNHEALTHY: ",".join(both)}
    world.configs[plugin.uid] = Config("other")
    (reads,) = [action for action in operands.act(world) if action.pod is plugin]
    assert reads.annotations[keys.UNHEALTHY] == ""
