"""The device manager: which pod gets which device, how a pod is rejected, and faulty GPUs (row 22)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lab.simulator import device_plugin, keys, kubelet, operands
from lab.simulator.actions import Annotate, NodeResources, Reject
from lab.simulator.world import Config
from tests.lab.simulator.worlds import GPU, MIG, SEVEN, SHARED, cut, make_pod, make_world, mps, sliced

pytestmark = pytest.mark.unit

STRICT, LENIENT = (sliced(4, failRequestsGreaterThanOne=strict) for strict in (True, False))


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


def offers(world: Any) -> tuple[dict[str, int], dict[str, int]]:
    (action,) = kubelet.report_resources(world)
    assert isinstance(action, NodeResources)
    return action.capacity, action.allocatable


def test_nvidia_three_gpus_one_unhealthy() -> None:
    assert offers(make_world(count=3, **sick("2"))) == ({GPU: 3}, {GPU: 2})


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
    assert offers(make_world(**given)) == (capacity, allocatable)


def test_one_mig_device_by_its_uuid() -> None:
    one = device_plugin.mig_uuid(make_world(), 0, "1g.5gb", 3)
    assert offers(make_world(gpu="20b0", **sick(one, SEVEN))) == ({MIG: 7}, {MIG: 6})


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
    assert (offers(well), device_plugin.act(well)) == (({GPU: 3}, {GPU: 2}), [])
    plugin.unhealthy = ""  # as in a new pod
    assert offers(well) == ({GPU: 3}, {GPU: 3})


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
