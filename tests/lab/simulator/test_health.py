"""A faulty GPU: capacity stays, allocatable drops, only its current pods keep it (row 22)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.simulator import device_plugin, health, keys, kubelet, operands
from lab.simulator.actions import Annotate, NodeResources, Reject
from lab.simulator.world import Config

pytestmark = pytest.mark.unit

GPU = "nvidia.com/gpu"


def sick(which: str) -> dict[str, str]:
    return {keys.UNHEALTHY: which}


def offers(world: Any) -> tuple[dict[str, int], dict[str, int]]:
    (action,) = kubelet.report(world)
    assert isinstance(action, NodeResources)
    return action.capacity, action.allocatable


def test_nvidia_three_gpus_one_unhealthy(make_world: Any) -> None:
    assert offers(make_world(count=3, annotations=sick("2"))) == ({GPU: 3}, {GPU: 2})


def test_none_is_sick(make_world: Any) -> None:
    assert offers(make_world(count=3)) == ({GPU: 3}, {GPU: 3})
    assert health.act(make_world(count=3)) == []


def shared(name: str, replicas: int) -> dict[str, Any]:
    entry = {"name": name, "rename": f"{name}.shared", "replicas": replicas}
    return {"timeSlicing": {"resources": [entry]}}


def cut(**layouts: list[str]) -> dict[str, str]:
    return {keys.MIG_LAYOUT: json.dumps({index.lstrip("g"): layout for index, layout in layouts.items()})}


SEVEN = [f"1g.5gb@{i}" for i in range(7)]
TAKES_WITH_IT: dict[str, tuple[dict[str, Any], dict[str, int], dict[str, int]]] = {
    "replicas": (
        {"count": 3, "sharing": shared(GPU, 4), "strategy": "time-slicing", "annotations": sick("0,1")},
        {f"{GPU}.shared": 12},
        {f"{GPU}.shared": 4},
    ),
    "slices": (
        {"gpu": "20b0", "count": 2, "annotations": cut(g0=SEVEN) | sick("0")},
        {GPU: 1, "nvidia.com/mig-1g.5gb": 7},
        {GPU: 1, "nvidia.com/mig-1g.5gb": 0},
    ),
    "replicas of slices": (
        {
            "gpu": "20b0",
            "count": 2,
            "annotations": cut(g0=SEVEN, g1=SEVEN) | sick("1"),
            "sharing": shared("nvidia.com/mig-1g.5gb", 2),
            "strategy": "time-slicing",
        },
        {"nvidia.com/mig-1g.5gb.shared": 28},
        {"nvidia.com/mig-1g.5gb.shared": 14},
    ),
    "nothing, where no GPU has that name": (
        {"count": 3, "annotations": sick("7, nonsense")},
        {GPU: 3},
        {GPU: 3},
    ),
}


@pytest.mark.parametrize(
    ("given", "capacity", "allocatable"), TAKES_WITH_IT.values(), ids=TAKES_WITH_IT.keys()
)
def test_a_sick_gpu_takes_with_it(
    make_world: Any, given: dict[str, Any], capacity: dict[str, int], allocatable: dict[str, int]
) -> None:
    assert offers(make_world(**given)) == (capacity, allocatable)


def test_one_mig_device_by_its_uuid(make_world: Any) -> None:
    plain = make_world(gpu="20b0", annotations=cut(g0=SEVEN))
    one = device_plugin.mig_uuid(plain, 0, "1g.5gb", 3)
    world = make_world(gpu="20b0", annotations=cut(g0=SEVEN) | sick(one))
    assert offers(world) == ({"nvidia.com/mig-1g.5gb": 7}, {"nvidia.com/mig-1g.5gb": 6})


def test_nobody_new_gets_it_and_who_has_it_keeps_it(make_world: Any, make_pod: Any) -> None:
    first, second, third = (device_plugin.gpu_uuid(make_world(count=3), index) for index in range(3))
    has = make_pod("has", asks={GPU: 1}, devices=third)
    new = make_pod("new", asks={GPU: 2}, phase="Pending")
    (given,) = kubelet.act(make_world(count=3, annotations=sick("2"), pods=(has, new)))
    assert isinstance(given, Annotate)
    assert given.pod is new
    assert given.annotations == {keys.DEVICES: f"{first},{second}"}
    greedy = make_pod("greedy", asks={GPU: 3}, phase="Pending")
    (refused,) = kubelet.act(make_world(count=3, annotations=sick("2"), pods=(greedy,)))
    assert isinstance(refused, Reject)
    assert "Requested: 3, Available: 2" in refused.message


def test_all_are_sick(make_world: Any, make_pod: Any) -> None:
    pod = make_pod(asks={GPU: 1}, phase="Pending")
    (refused,) = kubelet.act(make_world(annotations=sick("0"), pods=(pod,)))
    assert isinstance(refused, Reject)
    assert "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu" in refused.message


def test_the_plugin_never_takes_a_device_back_until_it_starts_again(make_world: Any) -> None:
    (noted,) = health.act(make_world(count=3, annotations=sick("2")))
    assert isinstance(noted, Annotate)
    assert noted.pod.operand == "device-plugin"
    well = make_world(count=3)
    plugin = well.running("device-plugin")
    plugin.unhealthy = noted.annotations[keys.UNHEALTHY]
    assert offers(well) == ({GPU: 3}, {GPU: 2})
    assert health.act(well) == []
    plugin.unhealthy = ""  # as in a new pod
    assert offers(well) == ({GPU: 3}, {GPU: 3})


def test_the_note_grows_and_another_configuration_forgets_it(make_world: Any) -> None:
    world = make_world(count=3, annotations=sick("1"))
    plugin = world.running("device-plugin")
    plugin.unhealthy = device_plugin.gpu_uuid(world, 2)
    (noted,) = health.act(world)
    both = sorted(device_plugin.gpu_uuid(world, index) for index in (1, 2))
    assert noted.annotations == {keys.UNHEALTHY: ",".join(both)}
    world.configs[plugin.uid] = Config("other")
    (reads,) = [action for action in operands.act(world) if action.pod is plugin]
    assert reads.annotations[keys.UNHEALTHY] == ""
