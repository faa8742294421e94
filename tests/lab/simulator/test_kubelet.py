"""The device manager: which pod gets which device, and how a pod is rejected."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lab.simulator import device_plugin, keys, kubelet
from lab.simulator.actions import Annotate, Reject

pytestmark = pytest.mark.unit

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def sliced(replicas: int, strict: bool) -> dict[str, Any]:
    resource = {"name": GPU, "rename": SHARED, "replicas": replicas}
    return {"timeSlicing": {"failRequestsGreaterThanOne": strict, "resources": [resource]}}


def given(world: Any) -> dict[str, list[str]]:
    actions = kubelet.act(world)
    assert all(isinstance(action, Annotate) for action in actions), actions
    return {a.pod.name: a.annotations[keys.DEVICES].split(",") for a in actions}


def refused(world: Any) -> Reject:
    (action,) = kubelet.act(world)
    assert isinstance(action, Reject)
    return action


def test_cern_tf_gpu_gets_the_gpu(make_world: Any, make_pod: Any) -> None:
    world = make_world(pods=(make_pod(asks={GPU: 1}, phase="Pending"),))
    assert given(world) == {"tf-gpu": device_plugin.offered(world)[GPU]}


def test_cern_two_slices_of_one_gpu_are_refused(make_world: Any, make_pod: Any) -> None:
    pod = make_pod(asks={SHARED: 2}, phase="Pending")
    world = make_world(sharing=sliced(4, True), strategy="time-slicing", pods=(pod,))
    assert refused(world) == Reject(
        pod,
        "UnexpectedAdmissionError",
        "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = invalid allocation "
        'request for "nvidia.com/gpu.shared": invalid request: maximum request size for shared resources '
        "is 1; found 2, which is unexpected",
    )


def test_two_slices_are_given_where_the_plugin_allows_it(make_world: Any, make_pod: Any) -> None:
    pod = make_pod(asks={SHARED: 2}, phase="Pending")
    world = make_world(sharing=sliced(4, False), strategy="time-slicing", pods=(pod,))
    assert len(given(world)["tf-gpu"]) == 2


def test_cisco_mps_never_gives_two(make_world: Any, make_pod: Any) -> None:
    mps = {"mps": {"resources": [{"name": GPU, "replicas": 3}]}}
    pods = (make_pod("d", "mps-control-daemon"), make_pod(asks={GPU: 2}, phase="Pending"))
    world = make_world(sharing=mps, strategy="mps", env="none", pods=pods)
    assert "maximum request size for shared resources is 1; found 2" in refused(world).message


def test_slices_are_spread_over_the_gpus(make_world: Any, make_pod: Any) -> None:
    pods = tuple(make_pod(f"p{i}", asks={SHARED: 1}, phase="Pending") for i in range(4))
    world = make_world(gpu="1db1", count=4, sharing=sliced(4, True), strategy="time-slicing", pods=pods)
    parents = Counter(device.partition("::")[0] for ids in given(world).values() for device in ids)
    assert sorted(parents.values()) == [1, 1, 1, 1]


def test_oldest_pod_first_and_none_left_for_the_last(make_world: Any, make_pod: Any) -> None:
    young = make_pod("a-young", asks={GPU: 1}, phase="Pending", created="2024-10-15T11:42:00Z")
    old = make_pod("z-old", asks={GPU: 1}, phase="Pending")
    first, second = kubelet.act(make_world(pods=(young, old)))
    assert isinstance(first, Annotate)
    assert first.pod is old
    assert isinstance(second, Reject)
    assert "requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0" in (
        second.message
    )


def test_finished_pod_gives_its_device_back(make_world: Any, make_pod: Any) -> None:
    world = make_world()
    (device,) = device_plugin.offered(world)[GPU]
    done = make_pod("done", asks={GPU: 1}, phase="Succeeded", devices=device)
    world.pods += [done, make_pod(asks={GPU: 1}, phase="Pending")]
    assert given(world) == {"tf-gpu": [device]}


def test_pod_that_goes_holds_its_device(make_world: Any, make_pod: Any) -> None:
    world = make_world()
    (device,) = device_plugin.offered(world)[GPU]
    leaving = make_pod("leaving", asks={GPU: 1}, devices=device, deleting=True)
    world.pods += [leaving, make_pod(asks={GPU: 1}, phase="Pending")]
    assert "Available: 0" in refused(world).message


def test_plugin_away_no_healthy_devices(make_world: Any, make_pod: Any) -> None:
    pod = make_pod(asks={GPU: 1}, phase="Pending")
    world = make_world(operands=(), capacity={GPU: 1}, pods=(pod,))
    assert "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu" in (
        refused(world).message
    )


def test_resource_that_was_never_there(make_world: Any, make_pod: Any) -> None:
    rejection = refused(make_world(pods=(make_pod(asks={"nvidia.com/mig-3g.20gb": 1}, phase="Pending"),)))
    assert rejection.reason == "OutOfnvidia.com/mig-3g.20gb"
    assert "capacity: 0" in rejection.message


def test_admitted_pod_is_left_alone(make_world: Any, make_pod: Any) -> None:
    assert kubelet.act(make_world(pods=(make_pod(asks={GPU: 1}, devices="GPU-1"),))) == []


def test_init_container_shares_with_the_main_one(make_world: Any, make_pod: Any) -> None:
    pod = make_pod(phase="Pending", requests=(("i", True, ((GPU, 2),)), ("c", False, ((GPU, 1),))))
    assert len(given(make_world(gpu="1db1", count=4, pods=(pod,)))["tf-gpu"]) == 2
