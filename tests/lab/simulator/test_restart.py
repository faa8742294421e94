"""The plugin stops and restarts: pods keep their devices, and free ones are counted right (row 22)."""

from __future__ import annotations

from typing import Any

import pytest

from lab.simulator import device_plugin, keys, kubelet
from lab.simulator.actions import Annotate, NodeResources, Reject

pytestmark = pytest.mark.unit

GPU = "nvidia.com/gpu"
SHARED = f"{GPU}.shared"
SLICED = {"timeSlicing": {"resources": [{"name": GPU, "rename": SHARED, "replicas": 2}]}}
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "whole": ({"gpu": "1db1", "count": 4}, GPU),
    "time_slicing": ({"gpu": "1eb8", "count": 2, "sharing": SLICED, "strategy": "time-slicing"}, SHARED),
    "mig": (
        {"gpu": "20b7", "annotations": {keys.MIG_LAYOUT: '{"0": ["1g.6gb@0", "1g.6gb@1", "2g.12gb@2"]}'}},
        "nvidia.com/mig-1g.6gb",
    ),
}


@pytest.mark.parametrize(("given", "resource"), KINDS.values(), ids=KINDS.keys())
def test_nvidia_zero_downtime_re_registration(
    make_world: Any, make_pod: Any, given: dict[str, Any], resource: str
) -> None:
    world = make_world(**given)
    before = device_plugin.offered(world)
    every = before[resource]
    holds = make_pod("holds", asks={resource: 1}, devices=every[0])
    capacity = {name: len(ids) for name, ids in before.items()}

    away = make_world(**given, operands=("driver", "toolkit"), capacity=capacity, pods=(holds,))
    assert kubelet.report(away) == [NodeResources({}, dict.fromkeys(capacity, 0))]
    assert kubelet.act(away) == []  # running pods are not touched

    late = make_pod("late", asks={resource: 1}, phase="Pending")
    unlucky = make_world(**given, operands=("driver",), capacity=capacity, pods=(holds, late))
    (refused,) = kubelet.act(unlucky)
    assert isinstance(refused, Reject)
    assert refused.pod is late

    rest = tuple(make_pod(f"next-{n}", asks={resource: 1}, phase="Pending") for n in range(len(every)))
    back = make_world(**given, capacity=capacity, pods=(holds, *rest))
    back.node.allocatable = dict.fromkeys(capacity, 0)
    assert kubelet.report(back) == [NodeResources({}, capacity)]
    assert device_plugin.offered(back) == before
    *admitted, too_many = kubelet.act(back)
    given_out = [a.annotations[keys.DEVICES] for a in admitted if isinstance(a, Annotate)]
    assert sorted(given_out) == sorted(set(every) - {every[0]})
    assert isinstance(too_many, Reject)
    assert "Available: 0" in too_many.message
