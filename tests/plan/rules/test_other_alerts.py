"""Every alert about nodes, pods, pools and the health loop: fires for its cause, alone, and ends."""

from __future__ import annotations

import pytest

from tests.plan.rules import world
from tests.plan.rules.promtool import AlertText, Case, Check, Promtool, selector
from tests.plan.rules.provoked import Row, during, node, not_during, provoke, rows, shown, waiting
from tests.plan.rules.world import SLICES, TURNS, TURNS_1, WHOLE, WHOLE_1, always

pytestmark = pytest.mark.engine

ROWS = (
    *rows("nodes"),
    Row(
        alert="GpuDcgmExporterAbsent",
        severity="warning",
        wait=10,
        series={
            name: not_during(value) if "DCGM" in name else during("0", "1")
            for name, value in world.exporter_series(SLICES).items()
        },
        labels=[node(SLICES)],
    ),
)


def test_each_fires_alone_and_ends(promtool: Promtool) -> None:
    promtool.test(world.environment(), provoke(world.healthy(), ROWS, (13, 18, 24, 29, 43), ended=75))


def test_what_takes_hours(promtool: Promtool) -> None:
    step = "label_nvidia_com_gpu_driver_upgrade_state"
    series = world.healthy()
    series[world.labelled(TURNS)] = "1x10 stale"
    series[world.labelled(TURNS, **{step: "drain-required"})] = "_x10 1x80 stale"
    series[world.labelled(TURNS, **{step: "upgrade-done"})] = "_x90 1x300"
    series[world.labelled(TURNS_1)] = "1x10 stale"
    series[world.labelled(TURNS_1, **{step: "upgrade-required"})] = "_x10 1x300"
    skipped = {step: "upgrade-required", "label_nvidia_com_gpu_driver_upgrade_skip": "true"}
    series[world.labelled(WHOLE_1)] = "1x10 stale"
    series[world.labelled(WHOLE_1, **skipped)] = "_x10 1x300"
    for index in range(WHOLE.gpus):  # its counters stay 0 while it computes
        series |= shown(WHOLE, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0x300", index)
        series |= shown(WHOLE, "DCGM_FI_DEV_GPU_UTIL", "100x300", index)
    for device in SLICES.devices():
        series[selector("DCGM_FI_PROF_GR_ENGINE_ACTIVE", **device)] = "0x130 0.5x300"
    stuck = node(TURNS, alertname="GpuDriverUpgradeStuck", severity="warning", state="drain-required")
    waits = node(TURNS_1, alertname="GpuDriverUpgradeStuck", severity="warning", state="upgrade-required")
    idle = node(
        SLICES,
        alertname="GpuAllocatedIdle",
        severity="info",
        namespace="team",
        pod="large",
        sharing="mig",
        resource="nvidia_com_mig_3g_20gb",
    )
    times = {"60m": [], "85m": [stuck], "100m": [], "118m": [], "124m": [idle], "140m": [], "155m": [waits]}
    then = [Check(time, fires=fired) for time, fired in times.items()]
    promtool.test(world.environment(), Case(series, then))


def test_a_node_that_stays_out_of_use(promtool: Promtool) -> None:
    taint = {"key": "gpuform.io/gpu-unhealthy", "value": "replace", "effect": "NoSchedule"}
    series = {selector("kube_node_spec_taint", node="whole-1", **taint): "_x10 1x260 stale"}
    stuck = node(WHOLE_1, alertname="GpuUnhealthyTaintStuck", severity="warning")
    then = [Check("240m", fires=[]), Check("255m", fires=[stuck]), Check("280m", fires=[])]
    promtool.test(world.environment(), Case(world.healthy() | series, then))


def test_a_busy_pod_hides_an_idle_neighbour_and_none_is_blamed(promtool: Promtool) -> None:
    """With time slicing, use cannot be attributed to a pod: no alert may name one while the GPU is busy."""
    promtool.test(world.environment(), Case(world.healthy(), [Check("125m", fires=[])]))


def test_all_exporters_are_away(promtool: Promtool) -> None:
    """One alert, not one for each node; none about single nodes, GPUs or idle pods."""
    blind = {"alertname": "GpuMonitoringBlind", "severity": "critical"}
    then = [Check("8m", fires=[]), Check("60m", fires=[blind])]
    promtool.test(world.environment(), Case(world.all_state_series(), then))


def test_kube_state_metrics_is_away(promtool: Promtool) -> None:
    """Alerts that need it do not fire, not even for pods and nodes that had faults before."""
    gone = {name: value.replace("x300", "x40 stale") for name, value in world.all_state_series().items()}
    gone |= {name: values for name, values in waiting("late", "nvidia_com_mig_3g_20gb").items()}
    blind = {"alertname": "GpuStateMetricsAbsent", "severity": "warning"}
    series = gone | world.all_exporter_series()
    promtool.test(world.environment(), Case(series, [Check("80m", fires=[blind])]))
    promtool.test(world.environment(), Case({}, [Check("60m", fires=[blind])]))


def test_a_node_that_is_not_ready_is_somebody_elses_alert(promtool: Promtool) -> None:
    series = world.healthy()
    for status, value in (("true", "0"), ("unknown", "1")):
        ready = selector("kube_node_status_condition", node="whole-1", condition="Ready", status=status)
        series[ready] = always(value)
    series = {name: value for name, value in series.items() if "GPU-whole-1" not in name}
    series[world.allocatable(WHOLE_1, "nvidia_com_gpu")] = always("0")
    promtool.test(world.environment(), Case(series, [Check("30m", fires=[])]))


def test_the_health_loop_is_gone(promtool: Promtool) -> None:
    """The alert fires if the loop existed within the last hour, not if it never did."""
    seen = {selector("gpuform_health_breaker_open", job="gpuform-health"): "0x20 stale"}
    gone = {"alertname": "GpuHealthRemediatorAbsent", "severity": "critical"}
    then = [Check("19m", fires=[]), Check("28m", fires=[]), Check("35m", fires=[gone])]
    promtool.test(world.environment(), Case(world.healthy() | seen, then))


@pytest.mark.parametrize("declared", [True, False])
def test_a_health_loop_that_answers_and_sees_nothing(promtool: Promtool, declared: bool) -> None:
    """Its figures are scraped, but neither Prometheus nor the API server answers the loop."""
    own = {"monitoring": {}, "health": {"mode": "cordon"}} if declared else {}
    series = {
        selector("gpuform_health_breaker_open", job="gpuform-health"): always("0"),
        selector("gpuform_health_last_look_timestamp_seconds", job="gpuform-health"): "0+60x20 1200x300",
    }
    gone = {"alertname": "GpuHealthRemediatorAbsent", "severity": "critical"}
    then = [Check("19m", fires=[]), Check("30m", fires=[]), Check("40m", fires=[gone])]
    promtool.test(world.environment(**own), Case(world.healthy() | series, then))


def test_what_a_person_reads(promtool: Promtool) -> None:
    """Annotations with place and cause filled in; without a pod name they name the Deployment."""
    pod_of = {"namespace": "team", "sharing": "time_slicing", "resource": "nvidia_com_gpu_shared"}
    full = AlertText(
        "30m",
        "GpuSharedMemoryNearlyFull",
        node(TURNS, severity="warning", pod="one", **pod_of),
        {
            "summary": "memory of a GPU that pod team/one shares on node turns-0 is nearly full",
            "description": "97.59% is in use. Any of its pods can take the rest: the others then "
            "fail. Pool: turns. `gpuform top` lists the pods.",
            "runbook_url": "docs/runbooks/GpuSharedMemoryNearlyFull.md",
        },
    )
    refused = AlertText(
        "30m",
        "GpuPodPending",
        {"severity": "warning", "namespace": "poor", "deployment": "web", "reason": "quota"},
        {
            "summary": "poor/web waits for a GPU: quota",
            "description": "Its pods are rejected. The runbook says what to do for each reason.",
            "runbook_url": "docs/runbooks/GpuPodPending.md",
        },
    )
    series = world.all_state_series() | world.all_exporter_series()
    series = {name: value for name, value in series.items() if "other-two" not in name}
    for row in ROWS:
        if row.alert == full.alert or (row.labels and row.labels[0].get("reason") == "quota"):
            series |= {name: value for name, value in row.series.items() if value is not None}
    promtool.test(world.environment(), Case(series, texts=[full, refused]))
