"""Every alert about GPU hardware: fires for its cause, alone, and ends."""

from __future__ import annotations

import pytest

from infra.incluster import model
from infra.model.environment import Environment
from infra.model.gpu import xid
from infra.plan.rules.promql import ACTIVE, TEMPERATURE
from tests.plan.rules import world
from tests.plan.rules.promtool import Case, Check, Promtool, selector
from tests.plan.rules.provoked import Row, counted, fault, provoke, rows, shown
from tests.plan.rules.world import SLICES, TURNS, WHOLE, WHOLE_1, always

pytestmark = pytest.mark.engine

ROWS = (
    *rows("gpus"),
    Row(
        alert="GpuLost",
        severity="critical",
        series={
            name: value.replace("x300", "x9 stale")
            for name, value in world.all_exporter_series().items()
            if 'UUID="GPU-whole-1-3"' in name
        },
        labels=[fault(WHOLE_1, "replace", "gpu_lost", index=3)],
    ),
)


def test_each_fires_alone_and_ends(promtool: Promtool) -> None:
    promtool.test(world.environment(), provoke(world.healthy(), ROWS, (13, 18, 24, 43), ended=120))


def _quiet(promtool: Promtool, *series: dict[str, str]) -> None:
    times = [Check(time, fires=[]) for time in ("10m", "16m", "30m")]
    promtool.test(world.environment(), *(Case(world.healthy() | sample, times) for sample in series))


def test_no_fault_comes_from_another_job(promtool: Promtool) -> None:
    """Whoever has a target scraped would otherwise have nodes replaced."""
    forged = {
        name.replace('job="nvidia-dcgm-exporter"', 'job="team"'): values
        for row in ROWS
        for name, values in row.series.items()
        if values is not None and row.alert != "GpuLost"
    }
    own = {**WHOLE.gpu(9), "pool": "whole", "job": "team"}
    forged[selector(TEMPERATURE, **own)] = "60x9 stale"
    forged[selector(ACTIVE, **own, **{"class": "replace", "reason": "row_remap"})] = "1x300"
    samples: dict[str, dict[str, float]] = {model.SERIES: {}, f"{TEMPERATURE}{{gpu='9',job=''}}": {}}
    times = [Check(time, samples=samples) for time in ("13m", "24m", "40m")]
    promtool.test(world.environment(), Case(world.healthy() | forged, times))


def test_counters_that_begin_anew_are_no_errors(promtool: Promtool) -> None:
    """After a restart of an exporter, driver or node, counters fall to 0, or first appear above 0."""
    again = {}
    for name in world.healthy():
        if "TOTAL" in name or "VIOLATION" in name or "REMAPPED" in name:
            again[name] = "100x10 0x300"
    late = {name: "_x12 100x300" for name in again}
    _quiet(promtool, again, late)


def test_a_memory_error_that_ends_its_pod_is_seen(promtool: Promtool) -> None:
    """The series changes at that moment: it has no pod name, or another one."""
    field = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    series = world.healthy()
    del series[selector(field, **WHOLE.gpu())]
    pod = {"namespace": "team", "pod": "train", "container": "main"}
    series |= shown(WHOLE, field, "0x20 stale", **pod) | shown(WHOLE, field, "_x21 1x300")
    fired = {"alertname": "GpuEccUncorrectable", "severity": "critical", **fault(WHOLE, "reset", "ecc")}
    then = [Check("20m", fires=[]), Check("23m", fires=[fired]), Check("40m", fires=[])]
    promtool.test(world.environment(), Case(series, then))


_FIVE = "_x10 1x5 stale"
"""An XID that the exporter counts for its window of five minutes, from minute 10 on."""


def test_an_xid_holds_while_the_exporter_starts_again(promtool: Promtool) -> None:
    """The restarted exporter has lost its count; the fault ends five minutes later, not before."""
    series = world.healthy() | counted(TURNS, 95, "_x10 1 stale")
    fired = {"alertname": "GpuXidReset", "severity": "critical", **fault(TURNS, "reset", "xid", xid=95)}
    then = [Check("9m", fires=[]), Check("14m", fires=[fired]), Check("17m", fires=[])]
    promtool.test(world.environment(), Case(series, then))


def test_an_xid_of_long_ago_is_no_news(promtool: Promtool) -> None:
    """The gauge keeps the last XID for ever, through restarts of the exporter."""
    _quiet(promtool, shown(TURNS, "DCGM_FI_DEV_XID_ERRORS", "79x10 _x4 79x300"))


@pytest.mark.parametrize("named", [True, False], ids=["the XID is a label, too", "a value alone"])
def test_the_gauge_stands_in_for_a_count_that_is_not_exported(promtool: Promtool, named: bool) -> None:
    """dcgm-exporter names the XID in ``err_code``, so another XID is another series."""
    series = {name: values for name, values in world.healthy().items() if "DCGM_EXP_XID" not in name}
    gauge = "DCGM_FI_DEV_XID_ERRORS"
    if named:
        del series[selector(gauge, **TURNS.gpu())]
        series |= shown(TURNS, gauge, "31x10 stale", err_code="31")
        series |= shown(TURNS, gauge, "_x11 79x300", err_code="79")
    else:
        series |= shown(TURNS, gauge, "31x10 79x300")
    fired = {"alertname": "GpuXidReplace", "severity": "critical", **fault(TURNS, "replace", "xid", xid=79)}
    promtool.test(
        world.environment(),
        Case(series, [Check("9m", fires=[]), Check("12m", fires=[fired]), Check("20m", fires=[])]),
    )


def test_an_instance_of_a_cut_gpu_is_its_card(promtool: Promtool) -> None:
    """An XID of two instances is one fault, of the whole GPU."""
    labels = {"xid": 95, "window_size_in_ms": 300000}
    series = {selector("DCGM_EXP_XID_ERRORS_COUNT", **device, **labels): _FIVE for device in SLICES.devices()}
    fired = {"alertname": "GpuXidReset", "severity": "critical", **fault(SLICES, "reset", "xid", xid=95)}
    promtool.test(world.environment(), Case(world.healthy() | series, [Check("12m", fires=[fired])]))


def test_every_xid_of_the_table_has_the_class_that_the_table_says(promtool: Promtool) -> None:
    series: dict[str, str] = {}
    for number in xid.XIDS:
        series |= counted(TURNS, number, always("1"))
    want = {
        selector("gpuform:fault:active", **fault(TURNS, row.kind, "xid", xid=number)): 1.0
        for number, row in xid.XIDS.items()
    }
    promtool.test(
        world.environment(),
        Case(world.healthy() | series, [Check("10m", samples={"gpuform:fault:active": want})]),
    )


def test_a_gpu_is_not_lost_with_its_exporter_or_its_node(promtool: Promtool) -> None:
    away = {
        name: value.replace("x300", "x10 stale" if "DCGM" in name else "x10 0x300")
        for name, value in world.exporter_series(WHOLE).items()
    }
    times = [Check(time, fires=[]) for time in ("12m", "19m")]
    promtool.test(world.environment(), Case(world.healthy() | away, times))


def test_no_gpu_is_lost_where_measurements_are_rare(promtool: Promtool) -> None:
    """Rules run every two minutes at most: recorded values are that old when faults are evaluated.

    Once, DCGM reports no temperature.
    """
    once = shown(WHOLE, "DCGM_FI_DEV_GPU_TEMP", "60x9 stale 60x300")
    times = [Check(time, fires=[]) for time in ("10m", "20m", "22m", "24m", "30m")]
    promtool.test(world.environment(), Case(world.healthy() | once, times), backwards=True, step="2m")


@pytest.mark.parametrize("minutes", [2, 4, 8])
def test_no_gpu_is_lost_when_its_exporter_comes_again(promtool: Promtool, minutes: int) -> None:
    """All its series were away; it answers before it has queried DCGM for the first time."""
    series = world.healthy()
    for name, value in world.exporter_series(WHOLE).items():
        empty = 0 if name == world.up(WHOLE) else 1
        series[name] = _away(value, 10, minutes + empty)
    times = [Check(f"{minute}m", fires=[]) for minute in range(10, 10 + minutes + 5)]
    promtool.test(world.environment(), Case(series, times), backwards=True)


def _away(value: str, before: int, minutes: int) -> str:
    once = value.removesuffix(world.ALWAYS)
    return f"{once}x{before} stale _x{minutes - 1} {once}{world.ALWAYS}"


def _switched() -> Environment:
    switched = {"name": "whole", "machine": "p4d.24xlarge", "nodes": 2}
    return world.environment(pools=[{"name": "turns", "machine": "g2.5xlarge", "nodes": 1}, switched])


def _validated(pod: str, node: world.Node, waits: str, there: str) -> dict[str, str]:
    """A pod with an init container that cannot start CUDA, and how long the pod exists."""
    who = {"namespace": "gpu-operator", "pod": pod}
    reason = {"container": "cuda-validation", "reason": "CrashLoopBackOff"}
    return {
        selector("kube_pod_info", **who, node=node.name): there,
        selector("kube_pod_init_container_status_waiting_reason", **who, **reason): waits,
    }


_FABRIC = 'ALERTS{alertname="GpuFabricManagerFailed",alertstate="firing"}'
_FABRIC_OF_WHOLE = selector(
    "ALERTS",
    alertstate="firing",
    alertname="GpuFabricManagerFailed",
    severity="critical",
    node="whole-0",
    pool="whole",
)


def test_the_fabric_manager_by_the_validator(promtool: Promtool) -> None:
    """With NVSwitches, CUDA does not start without a fabric manager; elsewhere a failure says nothing."""
    series = {}
    for node in (WHOLE, TURNS):
        pod = f"nvidia-operator-validator-{node.name}"
        series |= _validated(pod, node, "0x10 1x10 0x300", always("1"))
    fired = {_FABRIC_OF_WHOLE: 1.0}
    times = {"12m": {}, "18m": fired, "30m": {}}
    then = [Check(time, samples={_FABRIC: samples}) for time, samples in times.items()]
    promtool.test(_switched(), Case(world.healthy() | series, then))


def test_a_validator_that_is_tried_again_and_again_has_failed(promtool: Promtool) -> None:
    """It runs between two waits, and every five minutes the pod is replaced; a single failure is ignored."""
    tried = _validated("cuda-0", WHOLE, "1x17 stale", "1x18 stale")
    for number in range(1, 8):
        begin = number * 20  # samples, one in 15 s
        waits, there = f"_x{begin + 2} 1x15 stale", f"_x{begin} 1x18 stale"
        tried |= _validated(f"cuda-{number}", WHOLE, waits, there)
    times = [f"{minute}m{second}s" for minute in (10, 12, 15, 17) for second in (5, 20, 35, 50)]
    failed = [Check(time, samples={_FABRIC: {_FABRIC_OF_WHOLE: 1.0}}) for time in times]
    once = _validated("cuda", WHOLE, "_x40 1x2 stale", always("1"))
    calm = [Check(f"{minute}m", samples={_FABRIC: {}}) for minute in range(10, 25)]
    healthy = world.healthy()
    promtool.test(_switched(), Case(healthy | tried, failed), Case(healthy | once, calm), step="15s")
