"""The models behind the series: invariants under any load, and the values of each."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.simulator import device_plugin, faults
from lab.simulator.dcgm import device, load
from lab.simulator.dcgm.device import State, advance
from lab.simulator.faults import Fault
from lab.simulator.hardware import GPUS
from tests.lab.simulator.worlds import GPU, START, Bench, make_pod, make_world

pytestmark = pytest.mark.unit

A100 = GPUS["20b0"]
COUNTERS = """
TOTAL_ENERGY_CONSUMPTION NVLINK_BANDWIDTH_TOTAL NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL POWER_VIOLATION
NVLINK_REPLAY_ERROR_COUNT_TOTAL THERMAL_VIOLATION ECC_DBE_AGG_TOTAL UNCORRECTABLE_REMAPPED_ROWS
"""
KINDS = (faults.ECC, faults.THERMAL, faults.POWER, faults.NVLINK, faults.ROW_REMAP)
steps = st.lists(
    st.tuples(
        st.floats(-5, 400),  # negative: the clock was set back
        st.floats(0, 1),
        st.floats(0, 1),
        st.sets(st.sampled_from(KINDS)),
        st.booleans(),
    ),
    min_size=2,
    max_size=12,
)


@given(steps=steps)
def test_counters_fall_only_when_the_driver_is_started_again(steps: Any) -> None:
    state, now, seen = State(), START, []
    since: dict[str, float] = {}
    for seconds, busy, link, kinds, restart in steps:
        now += seconds
        since = {kind: since.get(kind, now) for kind in kinds}
        broken = {kind: Fault(kind, 0, since[kind]) for kind in sorted(kinds)}
        if restart:
            state = state.after_restart(now)
        advance(state, A100, busy, link, broken, now)
        seen.append((restart, device.gpu_values(state, A100, busy, broken)))
        assert 50 <= state.watts <= 400
        assert 30 <= state.celsius <= 96.01
    for (_, before), (restart, after) in pairwise(seen):
        for name in COUNTERS.split():
            kept = name.endswith(("AGG_TOTAL", "REMAPPED_ROWS"))
            field = f"DCGM_FI_DEV_{name}"
            assert after[field] >= before[field] or (restart and not kept), name


@given(total=st.integers(1000, 200_000), held=st.integers(0, 400_000))
def test_memory_adds_up_to_what_there_is(total: int, held: int) -> None:
    result = [value for name, value in device.device_values(0, total, held, True).items() if "_FB_" in name]
    assert (len(result), sum(result), min(result) >= 0) == (3, total, True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # both are factories without state
@given(loads=st.lists(st.text(alphabet="0123456789.-einasx", max_size=6) | st.sampled_from(["sine", "idle"])))
def test_how_busy_is_between_nothing_and_all_whatever_pods_say(loads: list[str]) -> None:
    world = make_world(gpu="20b0", count=1)
    uuid = device_plugin.gpu_uuid(world, 0)
    world.pods += [
        make_pod(f"p{n}", asks={GPU: 1}, devices=f"{uuid}::{n}", load=word) for n, word in enumerate(loads)
    ]
    busy = load.usage_by_device(world, START)[uuid].busy
    assert 0 <= busy <= 1


DEFAULTS = {
    ("Job", ""): 0.9,
    ("StatefulSet", ""): 0.05,
    ("Pod", ""): 0.5,
    ("", "a lot"): 0.5,
    ("Job", "idle"): 0.0,
    ("Job", "0.25"): 0.25,
    ("Job", "2"): 0.9,
    ("Job", "nan"): 0.9,
}


@pytest.mark.parametrize(("owner", "message"), DEFAULTS)
def test_a_load_that_is_not_said_follows_from_the_owner(owner: str, message: str) -> None:
    pod = make_pod("p", asks={GPU: 1}, devices="GPU-x", owner=(owner, "o", "u"), load=message)
    assert load.load_of(pod, START) == DEFAULTS[owner, message]


def test_a_service_comes_and_goes_and_two_are_not_in_step() -> None:
    pods = [
        make_pod(f"p{n}", asks={GPU: 1}, devices="GPU-x", owner=("ReplicaSet", "o", "u")) for n in range(2)
    ]
    curves = [[load.load_of(pod, START + t) for t in range(0, 600, 10)] for pod in pods]
    for curve in curves:
        assert (min(curve), max(curve)) == (pytest.approx(0.1, abs=0.01), pytest.approx(0.9, abs=0.01))
    assert curves[0] != curves[1]


@pytest.mark.parametrize("change", [{"phase": "Pending"}, {"crash": "x"}, {"phase": "Failed"}])
def test_a_pod_that_is_down_does_nothing(change: dict[str, str]) -> None:
    bench, pod = working("1")
    for name, value in change.items():
        setattr(pod, name, value)
    assert bench.scrape().one("GPU_UTIL") == 0


def working(busy: str) -> tuple[Bench, Any]:
    world = make_world(gpu="20b0")
    pod = make_pod("p", asks={GPU: 1}, devices=device_plugin.gpu_uuid(world, 0), load=busy)
    world.pods.append(pod)
    return Bench(world), pod


def test_a_busy_pod_holds_memory_even_if_it_declares_none() -> None:
    bench, pod = working("1")
    whole = A100.memory_mib
    assert bench.scrape().one("FB_USED") == int(0.6 * whole)
    pod.devices += "::2"
    bench.world.node.labels["nvidia.com/gpu.replicas"] = "4"
    assert bench.scrape().one("FB_USED") == int(0.6 * whole) // 4
    pod.load = "idle"
    assert bench.scrape().one("FB_USED") == 0
    pod.load, pod.memory, pod.held = "1", "2000", "2000"
    assert bench.scrape().one("FB_USED") == 2000
    pod.held = ""  # it waits for memory
    assert bench.scrape().one("FB_USED") == 0


def test_energy_is_power_over_time_in_millijoules() -> None:
    bench, pod = working("1")
    assert bench.scrape().one("TOTAL_ENERGY_CONSUMPTION") == 0
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") == 400 * 10 * 1000
    pod.load = "idle"  # in between it counts as the mean of 400 and 50 W
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") == (4000 + 2250) * 1000
    assert bench.scrape(after=-60).one("TOTAL_ENERGY_CONSUMPTION") == 6250 * 1000


def test_the_temperature_follows_with_its_time_constant() -> None:
    bench, pod = working("idle")
    cold = 30 + 45 / 8
    assert bench.scrape().one("GPU_TEMP") == round(cold)
    pod.load = "1"
    assert bench.scrape(after=30).one("GPU_TEMP") == round(75 + (cold - 75) / math.e)
    assert bench.scrape(after=600).one("GPU_TEMP") == 75


def test_links_carry_bytes_where_a_pod_has_two_gpus() -> None:
    world = make_world(gpu="20b0", count=3)
    ids = [device_plugin.gpu_uuid(world, n) for n in range(3)]
    world.pods += [
        make_pod("two", asks={GPU: 2}, devices=",".join(ids[:2]), load="0.5"),
        make_pod("one", asks={GPU: 1}, devices=ids[2], load="0.5"),
    ]
    bench = Bench(world)
    bench.scrape()
    result = [value for _, value in bench.scrape(after=10).of("NVLINK_BANDWIDTH_TOTAL")]
    assert result == [600e9 * 0.25 * 0.5 * 10] * 2 + [0]


@pytest.mark.parametrize("changed", ["driver", "node"])
def test_another_driver_or_node_of_that_name_begins_anew(changed: str) -> None:
    bench, _ = working("idle")
    bench.scrape()
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") > 0
    (bench.world.node if changed == "node" else bench.world.pods_of("driver")[0]).uid = "another"
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") == 0
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") == 50 * 10 * 1000
