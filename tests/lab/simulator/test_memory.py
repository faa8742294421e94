"""The model of GPU memory: pools, order of allocation, which pod runs out, and the MPS daemon (row 19)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.simulator import device_plugin, gfd, keys, memory, operands
from lab.simulator.actions import Annotate, Crash, Recover
from lab.simulator.objects import Pod
from lab.simulator.world import Config
from tests.lab.simulator.worlds import CERN, GPU, cut, make_pod, make_world, mps, sliced

pytestmark = pytest.mark.unit

T4_MIB = 15360
SLICED: dict[str, Any] = sliced(4)
FULL = "out of memory"


def outcome(world: Any) -> dict[str, str]:
    """What each changed pod holds afterwards, or that it ran out of memory."""
    result: dict[str, str] = {}
    for action in memory.act(world):
        if isinstance(action, Annotate) and action.annotations[keys.MEMORY_HELD]:
            result[action.pod.name] = action.annotations[keys.MEMORY_HELD]
        elif isinstance(action, Crash):
            assert action.message.startswith("CUDA out of memory. Tried to allocate ")
            result[action.pod.name] = FULL
    return result


def process(name: str, wants: str, devices: str, held: str = "", **fields: Any) -> Pod:
    return make_pod(name, asks={GPU: 1}, devices=devices, memory=wants, held=held, **fields)


def replica(world: Any, n: int, index: int = 0) -> str:
    return f"{device_plugin.gpu_uuid(world, index)}::{n}"


def of(name: str, wants: str, held: str = "", **fields: Any) -> tuple[str, str, str, dict[str, Any]]:
    """A process; it has one replica, or the device in ``on``."""
    return name, wants, held, fields


CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str, str, dict[str, Any]]], dict[str, str]]] = {
    "a time-sliced GPU is one pool": (
        SLICED, [of("p0", "8000"), of("p1", "7360"), of("p2", "1")], {"p0": "8000", "p1": "7360", "p2": FULL}
    ),
    "the oldest first, whatever its name": (
        SLICED,
        [of("a", "10000"), of("z-old", "10000", created="2024-10-15T11:40:00Z")],
        {"z-old": "10000", "a": FULL},
    ),
    "a leak with nothing left fails": (
        SLICED, [of("full", "15360", "15360"), of("leak", "all")], {"leak": FULL}
    ),
    "a process that shrinks makes room": (
        SLICED,
        [of("shrinks", "1000", "15000"), of("waits", "14000", crash="CUDA out of memory. Tried ...")],
        {"shrinks": "1000", "waits": "14000"},
    ),
    "no size takes nothing": (
        SLICED, [of("words", "10 GiB"), of("silent", ""), of("new", "15360")], {"new": "15360"}
    ),
    "only running processes hold memory": (
        SLICED,
        [of("soon", "900", phase="Pending"), of("done", "900", "900", phase="Succeeded"), of("new", "15360")],
        {"new": "15360"},
    ),
    "a process that wants nothing gives back what it had": (
        SLICED, [of("new", "0"), of("old", "0", "100")], {"old": "0"}
    ),
    "nothing changes without the plugin": ({**SLICED, "operands": ("driver",)}, [of("leak", "all")], {}),
    "under MPS each client has its part": (
        {**mps(3), "operands": ("device-plugin", "mps-control-daemon")},
        [of("p0", "all"), of("p1", "5120"), of("p2", "5121")],
        {"p0": "5120", "p1": "5120", "p2": FULL},
    ),
    "a MIG device is a pool of its own": (
        {"gpu": "20b0", "annotations": cut(CERN)},
        [
            of("notebook", "all", on=("2g.10gb", 0)),
            of("simulation", "9728", on=("2g.10gb", 2)),
            of("inference", "10240", on=("3g.20gb", 4)),
            of("too-large", "19969", on=("3g.20gb", 4)),
        ],
        {"notebook": "9856", "simulation": "9728", "inference": "10240", "too-large": FULL},
    ),
    "an instance of unknown size has its slices' share": (
        {"gpu": "20b2", "annotations": cut(["3g.40gb@0"])},
        [of("all", "all", on=("3g.40gb", 0))],
        {"all": "40960"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_process_gets_its_memory_or_fails(case: str) -> None:
    given, processes, expected = CASES[case]
    world = make_world(**given)
    for n, (name, wants, held, fields) in enumerate(processes):
        device = device_plugin.mig_uuid(world, 0, *fields["on"]) if "on" in fields else replica(world, n)
        more = {key: value for key, value in fields.items() if key != "on"}
        world.pods.append(process(name, wants, device, held, **more))
    assert outcome(world) == expected


def test_a_process_that_grows_fails_in_pytorchs_words_and_comes_back_when_there_is_room() -> None:
    world = make_world(**SLICED)
    leak = process("notebook", "all", replica(world, 0), held=str(T4_MIB - 2048))
    grows = process("steady", "10240", replica(world, 1), held="2048")
    world.pods += [leak, grows]
    crash, freed = memory.act(world)
    assert (crash.pod, crash.container, freed.pod) == (grows, "c0", grows)
    assert "Tried to allocate 10240 MiB" in crash.message
    assert f"a capacity of {T4_MIB} MiB, of which 2048 MiB are free" in crash.message
    grows.crash, grows.held = crash.message, ""
    world.pods.remove(leak)
    recovered, note = memory.act(world)
    assert (recovered, note.annotations) == (Recover(grows), {keys.MEMORY_HELD: "10240"})


def test_two_gpus_are_two_pools() -> None:
    world = make_world(**{**SLICED, "count": 2})
    world.pods += [process(f"p{n}", "15000", replica(world, 0, n)) for n in range(2)]
    both = f"{replica(world, 1, 0)},{replica(world, 1, 1)}"
    world.pods.append(process("both", "1000", both, created="2024-10-15T11:42:00Z"))
    assert outcome(world) == {"p0": "15000", "p1": "15000", "both": FULL}


def with_daemon(**given: Any) -> tuple[Any, Pod, Config]:
    world, pod = make_world(**given), make_pod("mps", memory.DAEMON)
    config = world.config("device-plugin")
    assert config
    world.pods.append(pod)
    world.configs[pod.uid] = config
    return world, pod, config


def test_cisco_the_memory_is_an_equal_share() -> None:
    world, pod, _ = with_daemon(**mps(3))
    (noted,) = memory.write_limits(world)
    assert isinstance(noted, Annotate)
    limits = {"default_device_pinned_mem_limit": "5120M", "default_active_thread_percentage": "33"}
    assert json.loads(noted.annotations[keys.MPS_LIMITS]) == limits
    pod.limits = noted.annotations[keys.MPS_LIMITS]
    assert memory.write_limits(world) == []


def test_without_mps_the_daemon_does_nothing() -> None:
    world, pod, config = with_daemon()
    assert memory.write_limits(world) == []
    assert memory.exit_message(world, pod, config) is None


@pytest.mark.parametrize(("gpu", "most"), [("1eb8", 48), ("20b0", 48), ("1db1", 16)])
def test_as_many_clients_as_the_server_takes(gpu: str, most: int) -> None:
    driver = "580.126.09"  # the last branch for Volta
    fits, world = (with_daemon(gpu=gpu, driver=driver, **mps(n))[0] for n in (most, most + 1))
    assert not any(isinstance(action, Crash) for action in operands.act(fits))
    (crash,) = [action for action in operands.act(world) if isinstance(action, Crash)]
    assert crash.pod.operand == memory.DAEMON
    assert f"maximum allowed replicas exceeded: {most + 1} > {most}" in crash.message


def test_gfd_exits_with_mig_so_that_the_daemon_never_starts() -> None:
    world = make_world(gpu="20b0", annotations=cut(["7g.40gb@0"]), **mps(2))
    (pod,), config = world.pods_of("gfd"), world.config("gfd")
    assert config
    assert "MPS sharing is not supported for mig devices" in (gfd.exit_message(world, pod, config) or "")
    assert device_plugin.offered_devices(world) == {}


def test_a_new_daemon_needs_the_driver() -> None:
    world, pod, config = with_daemon(operands=("device-plugin",), **mps(2))
    pod.start = "waits"
    assert "no driver on this node" in (memory.exit_message(world, pod, config) or "")
