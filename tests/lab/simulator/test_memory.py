"""The model of GPU memory: pools, order of allocation, and which pod runs out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.simulator import device_plugin, keys, memory, mps
from lab.simulator.actions import Annotate, Crash, Recover
from lab.simulator.objects import Pod

pytestmark = pytest.mark.unit

GPU = "nvidia.com/gpu"
T4_MIB = 15360
SHARED: dict[str, Any] = {
    "gpu": "1eb8",
    "sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}},
    "strategy": "time-slicing",
}


@pytest.fixture
def process(make_pod: Any) -> Any:
    def made(name: str, wants: str, devices: str, held: str = "", **fields: Any) -> Pod:
        pod: Pod = make_pod(name, asks={GPU: 1}, devices=devices, memory=wants, held=held, **fields)
        return pod

    return made


def replica(world: Any, n: int, index: int = 0) -> str:
    return f"{device_plugin.gpu_uuid(world, index)}::{n}"


def outcome(world: Any) -> dict[str, str]:
    """What each changed pod holds afterwards, or that it ran out of memory."""
    found: dict[str, str] = {}
    for action in memory.act(world):
        if isinstance(action, Annotate) and action.annotations[keys.MEMORY_HELD]:
            found[action.pod.name] = action.annotations[keys.MEMORY_HELD]
        elif isinstance(action, Crash):
            assert action.message.startswith("CUDA out of memory. Tried to allocate ")
            found[action.pod.name] = "out of memory"
    return found


def test_on_a_gpu_shared_by_time_the_memory_is_one_pool(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED)
    wants = ("8000", "7360", "1")
    world.pods += [process(f"p{n}", size, replica(world, n)) for n, size in enumerate(wants)]
    assert outcome(world) == {"p0": "8000", "p1": "7360", "p2": "out of memory"}


def test_who_comes_first_gets_it_whatever_its_name(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED)
    old = process("z-old", "10000", replica(world, 0), created="2024-10-15T11:40:00Z")
    world.pods += [process("a-young", "10000", replica(world, 1)), old]
    assert outcome(world) == {"z-old": "10000", "a-young": "out of memory"}


def test_a_leak_takes_what_is_free_and_the_next_to_grow_falls(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED)
    leak = process("notebook", "all", replica(world, 0))
    steady = process("steady", "2048", replica(world, 1), held="2048")
    world.pods += [leak, steady]
    assert outcome(world) == {"notebook": str(T4_MIB - 2048)}
    leak.held = str(T4_MIB - 2048)
    assert memory.act(world) == []
    steady.memory = "10240"
    crash, freed = memory.act(world)
    assert isinstance(crash, Crash)
    assert crash.container == "c0"
    assert "Tried to allocate 10240 MiB" in crash.message
    assert f"a capacity of {T4_MIB} MiB, of which 2048 MiB are free" in crash.message
    assert isinstance(freed, Annotate)
    steady.crash, steady.held = crash.message, ""
    assert outcome(world) == {"notebook": str(T4_MIB)}  # the leak takes what the other lost
    leak.held = str(T4_MIB)
    assert memory.act(world) == []
    world.pods.remove(leak)
    recovered, note = memory.act(world)
    assert recovered == Recover(steady)
    assert note.annotations == {keys.MEMORY_HELD: "10240"}


def test_a_leak_with_nothing_left_fails_too(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED)
    world.pods += [
        process("full", str(T4_MIB), replica(world, 0), held=str(T4_MIB)),
        process("leak", "all", replica(world, 1)),
    ]
    assert outcome(world) == {"leak": "out of memory"}


def test_a_process_that_shrinks_makes_room(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED)
    world.pods += [
        process("shrinks", "1000", replica(world, 0), held="15000"),
        process("waits", "14000", replica(world, 1), crash="CUDA out of memory. Tried ..."),
    ]
    assert outcome(world) == {"shrinks": "1000", "waits": "14000"}


def test_two_gpus_are_two_pools(make_world: Any, process: Any) -> None:
    world = make_world(**{**SHARED, "count": 2})
    world.pods += [process(f"p{n}", "15000", replica(world, 0, n)) for n in range(2)]
    assert outcome(world) == {"p0": "15000", "p1": "15000"}
    both = f"{replica(world, 1, 0)},{replica(world, 1, 1)}"
    world.pods.append(process("both", "1000", both, created="2024-10-15T11:42:00Z"))
    assert outcome(world)["both"] == "out of memory"


def test_a_mig_device_is_a_pool_of_its_own(make_world: Any, process: Any) -> None:
    cut = {keys.MIG_LAYOUT: json.dumps({"0": ["2g.10gb@0", "2g.10gb@2", "3g.20gb@4"]})}
    world = make_world(gpu="20b0", annotations=cut)
    small, other, large = (
        device_plugin.mig_uuid(world, 0, profile, start)
        for profile, start in (("2g.10gb", 0), ("2g.10gb", 2), ("3g.20gb", 4))
    )
    world.pods += [
        process("notebook", "all", small),
        process("simulation", "9728", other),
        process("inference", "10240", large),
        process("too-large", "19969", large),
    ]
    assert outcome(world) == {
        "notebook": "9856",
        "simulation": "9728",
        "inference": "10240",
        "too-large": "out of memory",
    }


def test_an_instance_of_unknown_size_has_its_slices_share(make_world: Any, process: Any) -> None:
    world = make_world(gpu="20b2", annotations={keys.MIG_LAYOUT: json.dumps({"0": ["3g.40gb@0"]})})
    world.pods.append(process("all", "all", device_plugin.mig_uuid(world, 0, "3g.40gb", 0)))
    assert outcome(world) == {"all": "40960"}


def test_under_mps_each_client_has_its_part(make_world: Any, make_pod: Any, process: Any) -> None:
    sharing = {"mps": {"resources": [{"name": GPU, "replicas": 3}]}}
    world = make_world(gpu="1eb8", sharing=sharing, strategy="mps", env="none")
    world.pods.append(make_pod("mps", mps.DAEMON))
    wants = ("all", "5120", "5121")
    world.pods += [process(f"p{n}", size, replica(world, n)) for n, size in enumerate(wants)]
    assert outcome(world) == {"p0": "5120", "p1": "5120", "p2": "out of memory"}


def test_who_says_nothing_takes_nothing(make_world: Any, make_pod: Any) -> None:
    world = make_world()
    world.pods.append(make_pod(asks={GPU: 1}, devices=device_plugin.gpu_uuid(world, 0)))
    assert memory.act(world) == []


def test_words_that_are_no_size_take_nothing(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED)
    world.pods += [process("words", "10 GiB", replica(world, 0)), process("new", "15360", replica(world, 1))]
    assert outcome(world) == {"new": "15360"}


def test_nothing_changes_while_the_plugin_is_away(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED, operands=("driver",))
    world.pods.append(process("leak", "all", replica(world, 0)))
    assert memory.act(world) == []


def test_one_that_has_not_started_or_is_done_holds_nothing(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED)
    world.pods += [
        process("pending", "9000", replica(world, 0), phase="Pending"),
        process("done", "9000", replica(world, 1), phase="Succeeded", held="9000"),
        process("new", "15000", replica(world, 2)),
    ]
    assert outcome(world) == {"new": "15000"}


def test_a_process_that_wants_nothing_runs_and_gives_back_what_it_had(make_world: Any, process: Any) -> None:
    world = make_world(**SHARED)
    world.pods += [process("new", "0", replica(world, 0)), process("old", "0", replica(world, 1), held="100")]
    assert outcome(world) == {"old": "0"}
