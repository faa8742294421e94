"""Faults of simulated GPUs: their effect on the series, the exporter, and the node's allocatable."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from infra.model.gpu.xid import CLASSES, DEVICE_PLUGIN_SKIPS, numbers
from lab.simulator import device_plugin, faults, keys, kubelet, operands
from lab.simulator.actions import Annotate, Crash, Delete, NodeResources, Recover
from lab.simulator.faults import Fault
from tests.lab.simulator.worlds import GPU, START, Bench, Series, make_pod, make_world

pytestmark = pytest.mark.unit


@pytest.fixture
def bench() -> Bench:
    return Bench(make_world(gpu="20b0", count=2)).with_every_counter()


def restart(bench: Bench, operand: str, moment: float) -> None:
    (pod,) = bench.world.pods_of(operand)
    pod.created = datetime.fromtimestamp(moment, UTC).isoformat()


def counted(series: Series, gpu: int = 0) -> dict[str, float]:
    return {labels.get("xid", ""): value for labels, value in series.of("XID_ERRORS_COUNT", gpu=str(gpu))}


def test_an_xid_counts_for_five_minutes_and_stays_as_the_last_one(bench: Bench) -> None:
    assert counted(bench.scrape()) == {"": 0}
    bench.broken(Fault("xid", 0, bench.now + 1, 31), Fault("xid", 0, bench.now + 2, 79))
    series = bench.scrape(after=10)
    assert counted(series) == {"31": 1, "79": 1}
    assert {labels["window_size_in_ms"] for labels, _ in series.of("XID_ERRORS_COUNT", gpu="0")} == {"300000"}
    assert counted(series, gpu=1) == {"": 0}
    ((labels, value),) = series.of("XID_ERRORS", gpu="0")
    assert (value, labels["err_code"], labels["err_msg"]) == (79, "79", "GPU has fallen off the bus")
    bench.broken()  # clearing does not undo past XIDs
    assert counted(bench.scrape(after=285)) == {"31": 1, "79": 1}
    series = bench.scrape(after=20)
    assert counted(series) == {"": 0}
    assert series.one("XID_ERRORS", gpu="0") == 79


def test_the_same_xid_again_counts_again(bench: Bench) -> None:
    bench.broken(Fault("xid", 1, bench.now, 13), Fault("xid", 1, bench.now + 1, 13))
    assert counted(bench.scrape(after=2), gpu=1) == {"13": 2}


def test_an_exporter_that_was_started_afterwards_has_not_heard_of_it(bench: Bench) -> None:
    bench.broken(Fault("xid", 0, bench.now, 74))
    assert bench.scrape(after=1).one("XID_ERRORS", gpu="0") == 74
    restart(bench, "dcgm-exporter", bench.now + 1)
    series = bench.scrape(after=5)
    assert (series.one("XID_ERRORS", gpu="0"), counted(series)) == (0, {"": 0})


def test_broken_memory_makes_an_error_a_minute_until_it_is_reset(bench: Bench) -> None:
    bench.broken(Fault("ecc", 0, bench.now))
    series = bench.scrape(after=130)
    assert [series.one(name, gpu="0") for name in ("ECC_DBE_VOL_TOTAL", "ECC_DBE_AGG_TOTAL")] == [3, 3]
    assert series.one("UNCORRECTABLE_REMAPPED_ROWS", gpu="0") == 3
    assert counted(series) == {"48": 3}
    assert series.one("ECC_DBE_VOL_TOTAL", gpu="1") == 0
    bench.broken()
    series = bench.scrape(after=1)
    assert [series.one(name, gpu="0") for name in ("ECC_DBE_VOL_TOTAL", "ECC_DBE_AGG_TOTAL")] == [0, 3]


@pytest.mark.parametrize(("kind", "xid"), [("gpu-lost", 0), ("xid", 79)])
def test_a_lost_gpu_says_nothing_but_why(bench: Bench, kind: str, xid: int) -> None:
    bench.broken(Fault(kind, 1, bench.now, xid))
    series = bench.scrape(after=1)
    left = {name.removeprefix("DCGM_") for name, labels, _ in series.samples if labels["gpu"] == "1"}
    exporter = {f"EXP_{name}" for name in ("XID_ERRORS_COUNT", "CLOCK_EVENTS_COUNT", "GPU_HEALTH_STATUS")}
    assert left == {"FI_DEV_XID_ERRORS", *exporter}
    assert counted(series, gpu=1) == {"79": 1}
    assert series.one("GPU_HEALTH_STATUS", gpu="1", health_watch="ALL") == 20
    restart(bench, "dcgm-exporter", bench.now + 1)
    assert {labels["gpu"] for _, labels, _ in bench.scrape(after=5).samples} == {"0"}
    bench.broken()
    assert {labels["gpu"] for _, labels, _ in bench.scrape(after=5).samples} == {"0", "1"}


def working() -> Bench:
    world = make_world(gpu="20b0")
    uuid = device_plugin.gpu_uuid(world, 0)
    world.pods.append(make_pod("p", asks={GPU: 1}, devices=uuid, load="1"))
    return Bench(world).with_every_counter()


def test_without_cooling_it_is_hot_slow_and_throttled() -> None:
    bench = working()
    before = bench.scrape()
    assert (before.one("GPU_TEMP"), before.one("SM_CLOCK")) == (75, 1410)
    bench.broken(Fault("thermal", 0, bench.now))
    after = bench.scrape(after=120)
    assert (after.one("GPU_TEMP"), after.one("SM_CLOCK"), after.one("POWER_USAGE")) == (96, 705, 400)
    assert after.one("THERMAL_VIOLATION") == 120e9
    events = {labels["clock_event"]: value for labels, value in after.of("CLOCK_EVENTS_COUNT")}
    assert events == {"hw_slowdown": 4, "hw_thermal": 4}
    bench.broken()
    again = bench.scrape(after=600)
    assert (again.one("GPU_TEMP"), again.one("THERMAL_VIOLATION")) == (75, 120e9)


LINKS = [f"NVLINK_{kind}_ERROR_COUNT_TOTAL" for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")]
# Values 30 s after the fault began, and once it is cleared.
LASTING = {
    "power": (
        {"POWER_USAGE": 200, "SM_CLOCK": 987, "POWER_VIOLATION": 30e9, "THERMAL_VIOLATION": 0},
        {"POWER_USAGE": 400, "SM_CLOCK": 1410, "POWER_VIOLATION": 30e9},
    ),
    "nvlink": (dict.fromkeys(LINKS, 300), dict.fromkeys(LINKS, 300)),
    "row-remap": ({"ROW_REMAP_FAILURE": 1}, {"ROW_REMAP_FAILURE": 0}),
}


@pytest.mark.parametrize("kind", LASTING)
def test_what_a_fault_does_to_the_series_and_what_stays(kind: str) -> None:
    bench = working()
    bench.scrape()
    bench.broken(Fault(kind, 0, bench.now))
    series, (during, after) = bench.scrape(after=30), LASTING[kind]
    assert {name: series.one(name) for name in during} == during
    assert counted(series) == {"": 0}
    bench.broken()
    series = bench.scrape(after=1)
    assert {name: series.one(name) for name in after} == after


def test_an_exporter_that_is_down_crash_loops_answers_nothing_and_forgets(bench: Bench) -> None:
    bench.broken(Fault("xid", 0, bench.now, 13))
    bench.scrape(after=1)
    bench.broken(Fault("exporter-down", -1, bench.now))
    (crash,) = operands.act(bench.world)
    assert isinstance(crash, Crash)
    assert (crash.pod.operand, crash.container) == ("dcgm-exporter", "dcgm-exporter")
    assert bench.exporters.scrape("node-0")[0] == 503
    crash.pod.crash = crash.message
    assert operands.act(bench.world) == []
    bench.now += 60
    assert bench.exporters.scrape("node-0")[0] == 503
    bench.broken()
    assert [type(action) for action in operands.act(bench.world)] == [Recover]
    crash.pod.crash = ""
    series = bench.scrape(after=1)
    assert (series.one("XID_ERRORS", gpu="0"), counted(series)) == (0, {"": 0})


def test_without_its_fabric_manager_the_node_is_not_validated() -> None:
    world = make_world(gpu="2330", count=8)
    runs = make_pod("v", "validator")
    job = make_pod("c", "cuda-validator", phase="Succeeded")
    world.pods += [runs, job]
    assert operands.act(world) == []
    world.node.annotations[keys.FAULTS] = faults.render([Fault("fabric-manager", -1, START)]) or ""
    assert operands.act(world) == [Delete(runs)]
    runs.start, runs.phase, runs.ready = "waits", "Pending", False
    (crash,) = operands.act(world)
    assert isinstance(crash, Crash)
    assert (crash.pod, crash.container) == (runs, "cuda-validation")
    runs.crash = crash.message
    assert operands.act(world) == []
    del world.node.annotations[keys.FAULTS]
    (start,) = operands.act(world)
    assert isinstance(start, Annotate)
    assert start.annotations == {keys.START: "granted"}


def allocatable(world: Any) -> int:
    (action,) = kubelet.report_resources(world)
    assert isinstance(action, NodeResources)
    assert action.capacity == {GPU: 2}
    return action.allocatable[GPU]


def test_every_xid_that_the_alerts_know_can_be_sent() -> None:
    assert {number for kind in CLASSES for number in numbers(kind)} <= faults.XIDS.keys()
    assert DEVICE_PLUGIN_SKIPS == faults.APPLICATION_XIDS


@pytest.mark.parametrize("xid", sorted(faults.XIDS))
def test_the_plugin_takes_a_gpu_away_for_every_xid_but_the_applications(bench: Bench, xid: int) -> None:
    bench.broken(Fault("xid", 0, bench.now, xid))
    mine = xid in (13, 31, 43, 45, 68, 109)
    assert allocatable(bench.world) == (2 if mine else 1)
    noted = [action for action in device_plugin.act(bench.world) if isinstance(action, Annotate)]
    assert bool(noted) != mine


@pytest.mark.parametrize("kind", ["ecc", "gpu-lost", "thermal", "power", "nvlink", "row-remap"])
def test_what_sends_an_xid_takes_the_gpu_away(bench: Bench, kind: str) -> None:
    bench.broken(Fault(kind, 1, bench.now))
    assert allocatable(bench.world) == (1 if kind in ("ecc", "gpu-lost") else 2)


@pytest.mark.parametrize(("kind", "xid", "left"), [("xid", 48, 2), ("xid", 79, 1), ("gpu-lost", 0, 1)])
def test_a_plugin_that_was_started_later_has_not_seen_an_xid(
    bench: Bench, kind: str, xid: int, left: int
) -> None:
    bench.broken(Fault(kind, 0, START, xid))
    restart(bench, "device-plugin", START + 5)
    assert allocatable(bench.world) == left


def test_an_entry_survives_being_written_and_read() -> None:
    entries = (Fault("xid", 3, START + 0.25, 79), Fault("power", 0, START), Fault("exporter-down", -1, START))
    text = faults.render(entries)
    assert text is not None
    assert faults.parse(text) == entries
    assert faults.render(()) is None


BAD = '[{"kind": "fire", "gpu": 0, "since": "now"}]'
NONSENSE = ["", "{", "[]", "7", "[7]", '[{"kind": "xid"}]', '{"a": 1}', BAD]


@pytest.mark.parametrize("text", NONSENSE)
def test_an_annotation_that_is_no_list_of_faults_breaks_nothing(bench: Bench, text: str) -> None:
    bench.world.node.annotations[keys.FAULTS] = text
    assert faults.faults_of(bench.world.node) == ()
    assert allocatable(bench.world) == 2
    assert bench.scrape().one("GPU_TEMP", gpu="0") > 0


def test_a_gpu_that_the_node_has_not_breaks_nothing(bench: Bench) -> None:
    bench.broken(Fault("gpu-lost", 9, bench.now))
    assert allocatable(bench.world) == 2
    assert json.loads(bench.world.node.annotations[keys.FAULTS])[0]["gpu"] == 9
    assert {labels["gpu"] for _, labels, _ in bench.scrape().samples} == {"0", "1"}
