"""MPS: what its daemon sets and refuses, and the other operands with it (row 19)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.simulator import device_plugin, gfd, keys, mps, operands
from lab.simulator.actions import Annotate, Crash

pytestmark = pytest.mark.unit

GPU = "nvidia.com/gpu"


def shared(replicas: int) -> dict[str, Any]:
    resources = [{"name": GPU, "devices": "all", "replicas": replicas}]
    return {"sharing": {"mps": {"resources": resources}}, "strategy": "mps", "env": "none"}


def with_daemon(make_world: Any, make_pod: Any, **given: Any) -> Any:
    world = make_world(**given)
    pod = make_pod("mps", mps.DAEMON)
    world.pods.append(pod)
    world.configs[pod.uid] = world.config("device-plugin")
    return world


def test_cisco_the_memory_is_an_equal_share(make_world: Any, make_pod: Any) -> None:
    world = with_daemon(make_world, make_pod, **shared(3))
    (noted,) = mps.act(world)
    assert isinstance(noted, Annotate)
    assert json.loads(noted.annotations[keys.MPS_LIMITS]) == {
        "default_device_pinned_mem_limit": "5120M",
        "default_active_thread_percentage": "33",
    }
    noted.pod.limits = noted.annotations[keys.MPS_LIMITS]
    assert mps.act(world) == []


def test_without_mps_the_daemon_waits_for_ever(make_world: Any, make_pod: Any) -> None:
    world = with_daemon(make_world, make_pod)
    assert mps.act(world) == []
    assert mps.problem(world, world.running(mps.DAEMON), world.config("device-plugin")) is None


@pytest.mark.parametrize(("gpu", "most"), [("1eb8", 48), ("20b0", 48), ("1db1", 16)])
def test_as_many_clients_as_the_server_takes(make_world: Any, make_pod: Any, gpu: str, most: int) -> None:
    driver = "580.126.09"  # the last branch for Volta
    fits = with_daemon(make_world, make_pod, gpu=gpu, driver=driver, **shared(most))
    config = fits.config("device-plugin")
    assert mps.problem(fits, fits.running(mps.DAEMON), config) is None
    world = with_daemon(make_world, make_pod, gpu=gpu, driver=driver, **shared(most + 1))
    pod = world.running(mps.DAEMON)
    world.configs[pod.uid] = world.config("device-plugin")
    (crash,) = [action for action in operands.act(world) if isinstance(action, Crash)]
    assert crash.pod is pod
    assert f"maximum allowed replicas exceeded: {most + 1} > {most}" in crash.message


def test_gfd_exits_where_mig_is_on_and_so_the_daemon_never_comes(make_world: Any) -> None:
    cut = {keys.MIG_LAYOUT: json.dumps({"0": ["7g.40gb@0"]})}
    world = make_world(gpu="20b0", annotations=cut, **shared(2))
    message = gfd.problem(world, world.running("gfd"), world.config("gfd"))
    assert message is not None
    assert "MPS sharing is not supported for mig devices" in message
    assert device_plugin.offered(world) == {}


def test_a_new_daemon_needs_the_driver(make_world: Any, make_pod: Any) -> None:
    world = make_world(operands=("device-plugin",), **shared(2))
    pod = make_pod("mps", mps.DAEMON, start="waits")
    assert "no driver on this node" in (mps.problem(world, pod, world.config("device-plugin")) or "")
