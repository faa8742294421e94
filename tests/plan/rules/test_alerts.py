"""Every alert about GPUs, nodes, pods, pools and the health loop: fires for its cause, alone, and ends."""

from __future__ import annotations

import pytest

from infra.incluster import model
from infra.model.gpu import xid
from infra.plan.rules.promql import ACTIVE, TEMPERATURE
from tests.plan.rules import world
from tests.plan.rules.promtool import Case, Promtool, Values, selector, shows
from tests.plan.rules.provoked import (
    Row,
    during,
    fired,
    gpu_series,
    not_during,
    of_node,
    provoke,
    rows,
    waiting,
    xid_count,
)
from tests.plan.rules.world import SLICES, TURNS, TURNS_1, WHOLE, WHOLE_1, always

pytestmark = pytest.mark.engine

GPU_ROWS = [
    *rows("gpus"),
    Row(
        alert="GpuLost",
        severity="critical",
        series={
            name: value.replace("x300", "x9 stale")
            for name, value in world.all_exporter_series().items()
            if 'UUID="GPU-whole-1-3"' in name
        },
        labels=[of_node(WHOLE_1, gpu=3, reason="gpu_lost", **{"class": "replace"})],
    ),
]
NODE_ROWS = [
    *rows("nodes"),
    Row(
        alert="GpuDcgmExporterAbsent",
        severity="warning",
        wait=10,
        series={
            name: not_during(value) if "DCGM" in name else during("0", "1")
            for name, value in world.exporter_series(SLICES).items()
        },
        labels=[of_node(SLICES)],
    ),
]


@pytest.mark.parametrize(
    ("part", "times", "ended"),
    [(GPU_ROWS, (13, 18, 24, 43), 120), (NODE_ROWS, (13, 18, 24, 29, 43), 75)],
    ids=["gpus", "nodes"],
)
def test_each_alert_fires_alone_and_ends(
    promtool: Promtool, part: list[Row], times: tuple[int, ...], ended: int
) -> None:
    promtool.test(provoke(world.healthy(), part, times, ended))


def test_no_fault_comes_from_another_job(promtool: Promtool) -> None:
    """Whoever has a target scraped would otherwise have nodes replaced."""
    forged = {
        name.replace('job="nvidia-dcgm-exporter"', 'job="team"'): values
        for row in GPU_ROWS
        for name, values in row.series.items()
        if row.alert != "GpuLost"
    }
    own = {**WHOLE.gpu(9), "pool": "whole", "job": "team"}
    forged[selector(TEMPERATURE, **own)] = "60x9 stale"
    forged[selector(ACTIVE, **own, **{"class": "replace", "reason": "row_remap"})] = "1x300"
    none: dict[str, Values] = {model.SERIES: {}, f"{TEMPERATURE}{{gpu='9',job=''}}": {}}
    promtool.test(Case(world.healthy() | forged, samples=dict.fromkeys((13, 24, 40), none)))


def xid_alert(node: world.Node, number: int, kind: str) -> dict[str, object]:
    labels = of_node(node, gpu=0, reason="xid", xid=number, **{"class": kind})
    return fired(f"GpuXid{kind.capitalize()}", "critical", **labels)


HEALTHY = world.healthy()
QUIET: dict[float, list[dict[str, object]]] = {10: [], 16: [], 30: []}
COUNTERS = [name for name in HEALTHY if any(word in name for word in ("TOTAL", "VIOLATION", "REMAPPED"))]
ECC, GAUGE = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_XID_ERRORS"
OF_POD = {"namespace": "team", "pod": "train", "container": "main"}
ECC_ALERT = fired(
    *("GpuEccUncorrectable", "critical"), **of_node(WHOLE, gpu=0, reason="ecc", **{"class": "reset"})
)
OUT_OF_USE = {"key": "gpuform.io/gpu-unhealthy", "value": "replace", "effect": "NoSchedule"}
NO_STATE = fired("GpuStateMetricsAbsent", "warning")
READY = {"node": "whole-1", "condition": "Ready"}
LOOP = {
    name: selector(f"gpuform_health_{name}", job="gpuform-health")
    for name in ("breaker_open", "last_look_timestamp_seconds")
}
NO_LOOP = fired("GpuHealthRemediatorAbsent", "critical")
CASES = {
    "counters that begin anew": Case(HEALTHY | dict.fromkeys(COUNTERS, "100x10 0x300"), QUIET),
    "counters that appear above zero": Case(HEALTHY | dict.fromkeys(COUNTERS, "_x12 100x300"), QUIET),
    # The series changes at that moment: it has no pod name, or another one.
    "a memory error that ends its pod": Case(
        world.without(selector(ECC, **WHOLE.gpu()))
        | gpu_series(WHOLE, ECC, "0x20 stale", **OF_POD)
        | gpu_series(WHOLE, ECC, "_x21 1x300"),
        {20: [], 23: [ECC_ALERT], 40: []},
    ),
    # The restarted exporter has lost its count; the fault ends five minutes later, not before.
    "an XID, and its exporter starts again": Case(
        HEALTHY | xid_count(TURNS, 95, "_x10 1 stale"), {9: [], 14: [xid_alert(TURNS, 95, "reset")], 17: []}
    ),
    # The gauge keeps the last XID for ever, through restarts of the exporter.
    "an XID of long ago": Case(HEALTHY | gpu_series(TURNS, GAUGE, "79x10 _x4 79x300"), QUIET),
    "an XID that only the gauge has": Case(
        world.without("DCGM_EXP_XID") | gpu_series(TURNS, GAUGE, "31x10 79x300"),
        {9: [], 12: [xid_alert(TURNS, 79, "replace")], 20: []},
    ),
    # dcgm-exporter names the XID in ``err_code``, so another XID is another series.
    "an XID that the gauge has as a label too": Case(
        world.without("DCGM_EXP_XID", selector(GAUGE, **TURNS.gpu()))
        | gpu_series(TURNS, GAUGE, "31x10 stale", err_code="31")
        | gpu_series(TURNS, GAUGE, "_x11 79x300", err_code="79"),
        {9: [], 12: [xid_alert(TURNS, 79, "replace")], 20: []},
    ),
    "an XID of two instances is one, of their card": Case(
        HEALTHY
        | {
            selector(
                "DCGM_EXP_XID_ERRORS_COUNT", **device, xid=95, window_size_in_ms=300000
            ): "_x10 1x5 stale"
            for device in SLICES.devices()
        },
        {12: [xid_alert(SLICES, 95, "reset")]},
    ),
    "an exporter and its node are away": Case(
        HEALTHY
        | {
            name: value.replace("x300", "x10 stale" if "DCGM" in name else "x10 0x300")
            for name, value in world.exporter_series(WHOLE).items()
        },
        {12: [], 19: []},
    ),
    # With time slicing, use is not known by pod: beside a busy pod, none is reported as idle after hours.
    "a node that stays out of use": Case(
        HEALTHY | {selector("kube_node_spec_taint", node="whole-1", **OUT_OF_USE): "_x10 1x260 stale"},
        {240: [], 255: [fired("GpuUnhealthyTaintStuck", "warning", **of_node(WHOLE_1))], 280: []},
    ),
    # One alert, not one for each node; none about single nodes, GPUs or idle pods.
    "all exporters are away": Case(
        world.all_state_series(), {8: [], 60: [fired("GpuMonitoringBlind", "critical")]}
    ),
    # Not even an alert for pods and nodes that had faults before.
    "kube-state-metrics is away": Case(
        world.replaced("x300", "x40 stale", world.all_state_series())
        | waiting("late", "nvidia_com_mig_3g_20gb")
        | world.all_exporter_series(),
        {80: [NO_STATE]},
    ),
    "nothing is there": Case({}, {60: [NO_STATE]}),
    # The cluster's own alerts are about it.
    "a node is not ready": Case(
        world.without("GPU-whole-1")
        | {
            selector("kube_node_status_condition", **READY, status="true"): always("0"),
            selector("kube_node_status_condition", **READY, status="unknown"): always("1"),
            world.allocatable(WHOLE_1, "nvidia_com_gpu"): always("0"),
        },
        {30: []},
    ),
    # Only if the loop existed within the last hour.
    "the health loop is gone": Case(
        HEALTHY | {LOOP["breaker_open"]: "0x20 stale"}, {19: [], 28: [], 35: [NO_LOOP]}
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_only_these_alerts_fire(promtool: Promtool, case: Case) -> None:
    promtool.test(case)


def test_every_xid_of_the_table_has_the_class_that_the_table_says(promtool: Promtool) -> None:
    series: dict[str, str] = {}
    for number in xid.XIDS:
        series |= xid_count(TURNS, number, always("1"))
    want = {
        selector(
            "gpuform:fault:active",
            **world.with_uuid(of_node(TURNS, gpu=0)),
            **{"class": row.kind},
            reason="xid",
            xid=number,
        ): 1.0
        for number, row in xid.XIDS.items()
    }
    promtool.test(shows(HEALTHY | series, {"gpuform:fault:active": want}))


def test_no_gpu_is_lost_where_measurements_are_rare(promtool: Promtool) -> None:
    """Rules run every two minutes at most: recorded values are that old when faults are evaluated.

    Once, DCGM reports no temperature.
    """
    once = gpu_series(WHOLE, "DCGM_FI_DEV_GPU_TEMP", "60x9 stale 60x300")
    quiet = Case(HEALTHY | once, dict.fromkeys((10, 20, 22, 24, 30), ()))
    promtool.test(quiet, backwards=True, step="2m")


def test_no_gpu_is_lost_when_its_exporter_comes_again(promtool: Promtool) -> None:
    """All its series were away; it answers before it has queried DCGM for the first time."""

    def away(minutes: int) -> Case:
        series = dict(HEALTHY)
        for name, value in world.exporter_series(WHOLE).items():
            once, empty = value.removesuffix(world.ALWAYS), name != world.up(WHOLE)
            series[name] = f"{once}x10 stale _x{minutes + empty - 1} {once}{world.ALWAYS}"
        return Case(series, dict.fromkeys(range(10, 10 + minutes + 5), ()))

    promtool.test(*map(away, (2, 4, 8)), backwards=True)


def validators(pod: str, node: world.Node, waits: str, there: str) -> dict[str, str]:
    """A pod with an init container that cannot start CUDA, and how long the pod exists."""
    who = {"namespace": "gpu-operator", "pod": pod}
    reason = {"container": "cuda-validation", "reason": "CrashLoopBackOff"}
    return {
        selector("kube_pod_info", **who, node=node.name): there,
        selector("kube_pod_init_container_status_waiting_reason", **who, **reason): waits,
    }


FABRIC = 'ALERTS{alertname="GpuFabricManagerFailed",alertstate="firing"}'
FABRIC_OF_WHOLE = selector(
    "ALERTS",
    alertstate="firing",
    **fired("GpuFabricManagerFailed", "critical", **of_node(WHOLE)),
)


def test_the_fabric_manager_is_judged_by_the_validator(promtool: Promtool) -> None:
    """With NVSwitches, CUDA does not start without a fabric manager; elsewhere a failure says nothing.

    The validator runs between two waits, and every five minutes its pod is replaced; one failure is ignored.
    """
    begun = dict(HEALTHY)
    for node in (WHOLE, TURNS):
        begun |= validators(f"validator-{node.name}", node, "0x40 1x40 0x300", always("1"))
    tried = validators("cuda-0", WHOLE, "1x17 stale", "1x18 stale")
    for number in range(1, 8):
        begin = number * 20  # samples, one in 15 s
        waits, there = f"_x{begin + 2} 1x15 stale", f"_x{begin} 1x18 stale"
        tried |= validators(f"cuda-{number}", WHOLE, waits, there)
    once = validators("cuda", WHOLE, "_x40 1x2 stale", always("1"))
    fails: dict[str, Values] = {FABRIC: {FABRIC_OF_WHOLE: 1}}
    calm: dict[str, Values] = {FABRIC: {}}
    moments = [minute + second / 60 for minute in (10, 12, 15, 17) for second in (5, 20, 35, 50)]
    promtool.test(
        Case(begun, samples={12: calm, 18: fails, 30: calm}),
        Case(HEALTHY | tried, samples=dict.fromkeys(moments, fails)),
        Case(HEALTHY | once, samples=dict.fromkeys(range(10, 25), calm)),
        env=world.ENVIRONMENTS["switched"],
        step="15s",
    )


def test_what_takes_hours(promtool: Promtool) -> None:
    """A driver upgrade that stands still, and an idle pod; another one computes while its counters stay 0."""
    step = "label_nvidia_com_gpu_driver_upgrade_state"
    skipped = {step: "upgrade-required", "label_nvidia_com_gpu_driver_upgrade_skip": "true"}
    series = HEALTHY | {world.labelled(node): "1x10 stale" for node in (TURNS, TURNS_1, WHOLE_1)}
    series[world.labelled(TURNS, **{step: "drain-required"})] = "_x10 1x80 stale"
    series[world.labelled(TURNS, **{step: "upgrade-done"})] = "_x90 1x300"
    series[world.labelled(TURNS_1, **{step: "upgrade-required"})] = "_x10 1x300"
    series[world.labelled(WHOLE_1, **skipped)] = "_x10 1x300"
    for index in range(WHOLE.gpus):
        series |= gpu_series(WHOLE, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0x300", index)
        series |= gpu_series(WHOLE, "DCGM_FI_DEV_GPU_UTIL", "100x300", index)
    for device in SLICES.devices():
        series[selector("DCGM_FI_PROF_GR_ENGINE_ACTIVE", **device)] = "0x130 0.5x300"
    stuck = fired("GpuDriverUpgradeStuck", "warning", **of_node(TURNS), state="drain-required")
    waits = fired("GpuDriverUpgradeStuck", "warning", **of_node(TURNS_1), state="upgrade-required")
    pod = {"namespace": "team", "pod": "large", "sharing": "mig", "resource": "nvidia_com_mig_3g_20gb"}
    idle = fired("GpuAllocatedIdle", "info", **of_node(SLICES), **pod)
    times = {60: [], 85: [stuck], 100: [], 118: [], 124: [idle], 140: [], 155: [waits]}
    promtool.test(Case(series, times))


@pytest.mark.parametrize("declared", [True, False])
def test_a_health_loop_that_answers_and_sees_nothing(promtool: Promtool, declared: bool) -> None:
    """Its figures are scraped, but neither Prometheus nor the API server answers the loop."""
    own = {"monitoring": {}, "health": {"mode": "cordon"}} if declared else {}
    seen = dict(zip(LOOP.values(), (always("0"), "0+60x20 1200x300"), strict=True))
    promtool.test(
        Case(HEALTHY | seen, {19: [], 30: [], 40: [NO_LOOP]}),
        env=world.environment(**own),
    )


def test_annotations_name_place_and_cause(promtool: Promtool) -> None:
    """Without a pod name they name the Deployment."""
    labels = [
        of_node(TURNS, namespace="team", pod="one", sharing="time_slicing", resource="nvidia_com_gpu_shared"),
        {"namespace": "poor", "deployment": "web", "reason": "quota"},
    ]
    any_pod = "Any of its pods can take the rest: the others then fail."
    texts = {
        "GpuSharedMemoryNearlyFull": (
            "memory of a GPU that pod team/one shares on node turns-0 is nearly full",
            f"97.59% is in use. {any_pod} Pool: turns. `gpuform top` lists the pods.",
        ),
        "GpuPodPending": (
            "poor/web waits for a GPU: quota",
            "Its pods are rejected. The runbook says what to do for each reason.",
        ),
    }
    checks = [
        {
            "alertname": name,
            "eval_time": "30m",
            "exp_alerts": [
                {
                    "exp_labels": {"severity": "warning", **of},
                    "exp_annotations": {
                        "summary": summary,
                        "description": description,
                        "runbook_url": f"docs/runbooks/{name}.md",
                    },
                }
            ],
        }
        for of, (name, (summary, description)) in zip(labels, texts.items(), strict=True)
    ]
    series = world.without("other-two")
    for row in NODE_ROWS:
        if row.alert == "GpuSharedMemoryNearlyFull" or any(
            one.get("reason") == "quota" for one in row.labels
        ):
            series |= row.series
    promtool.test(Case(series, texts=checks))
