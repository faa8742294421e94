"""What the rules record, under promtool: in a healthy cluster, and when series are missing or return."""

from __future__ import annotations

import pytest

from infra.config import parse
from infra.incluster import model
from tests.plan.rules import world
from tests.plan.rules.promtool import Case, Check, Promtool, selector
from tests.plan.rules.world import MIB, SLICES, TURNS, WHOLE, always, pod

pytestmark = pytest.mark.engine

HEALTHY = world.recorded()


def test_a_healthy_cluster(promtool: Promtool) -> None:
    env = world.environment()
    promtool.test(env, Case(world.healthy(), [Check("10m", fires=[], samples=HEALTHY)]))


def test_the_health_loop_asks_for_nodes_all_of_whose_gpus_are_measured(promtool: Promtool) -> None:
    """A MIG GPU counts once; a node that lost one of four GPUs, or its exporter, counts as not measured."""
    there = {"turns-0": 1, "turns-1": 1, "slices-0": 1, "whole-0": 4, "whole-1": 4}
    every = {f'{{node="{node}"}}': gpus for node, gpus in there.items()}
    lost = {k: v for k, v in world.healthy().items() if "GPU-whole-0-3" not in k and "GPU-turns-0-" not in k}
    rest = {key: gpus for key, gpus in every.items() if key not in ('{node="whole-0"}', '{node="turns-0"}')}
    unknown = {k: v for k, v in world.healthy().items() if not k.startswith("kube_")}
    promtool.test(
        world.environment(),
        Case(world.healthy(), [Check("10m", samples={model.MEASURED: every})]),
        Case(lost, [Check("10m", samples={model.MEASURED: rest})]),
        Case(unknown, [Check("10m", samples={model.MEASURED: every})]),
        Case({}, [Check("10m", samples={model.MEASURED: {}})]),
    )


def test_hours_are_of_the_time_that_was_seen(promtool: Promtool) -> None:
    """Half of a GPU for half an hour; after the pod is gone, its hours still count for the hour."""
    short = {
        name: value.replace("x300", "x30 stale")
        for name, value in pod("half", WHOLE, {"nvidia_com_gpu": 1}, "gone").items()
    }
    series = {**world.healthy(), **short}
    hours = {
        f'round({name}{{namespace="gone"}}, 0.05)': {
            selector("", namespace="gone", pool="whole", sharing="exclusive"): value
        }
        for name, value in (
            ("gpuform:namespace:gpu_hours_requested_1h", 0.5),
            ("gpuform:namespace:gpu_hours_used_1h", 0.35),
            ("gpuform:namespace:gpu_hours_idle_1h", 0.15),
        )
    }
    promtool.test(world.environment(), Case(series, [Check("60m", samples=hours)]))


def test_the_exporter_of_a_node_is_away(promtool: Promtool) -> None:
    """The node's use is neither idle nor used; requests stay."""
    series = {name: value for name, value in world.healthy().items() if "GPU-slices-0" not in name}
    samples = {
        'gpuform:pod:gpus_used{pool="slices"}': {},
        'gpuform:namespace:gpus_idle{pool="slices"}': {},
        'gpuform:pool:gpus_used{pool="slices"}': {},
        'count(gpuform:pod:gpus_requested{pool="slices"})': {"{}": 1},
        'sum(gpuform:pool:gpus_used{pool="whole"})': {"{}": 4},
    }
    promtool.test(world.environment(), Case(series, [Check("9m", fires=[], samples=samples)]))


def test_a_node_that_changed_its_pool_just_before_nobody_told_of_it_any_more_is_of_one(
    promtool: Promtool,
) -> None:
    """If it had two pools, every rule that adds the pool would fail, for the GPUs of all nodes."""
    series = {
        name: value.replace("x300", "x10 stale") if name.startswith("kube_") else value
        for name, value in world.healthy().items()
    }
    series[world.labelled(WHOLE)] = "1x7 stale"
    series[world.labelled(WHOLE, label_gpuform_io_pool="turns")] = "_x8 1x2 stale"
    counts = {"count(gpuform:node:info)": {"{}": 6}, "count(gpuform:gpu:temperature_celsius)": {"{}": 11}}
    promtool.test(
        world.environment(), *(Case(series, [Check(when, samples=counts)]) for when in ("9m", "11m", "14m"))
    )


def test_nothing_is_there(promtool: Promtool) -> None:
    """Only facts: no pool reports 0 of anything that was not counted."""
    nothing = {
        expression: {}
        for expression in (
            "gpuform:node:info",
            "gpuform:device:util_ratio",
            "gpuform:pool:gpus_requested",
            "gpuform:pool:gpus_allocatable",
            "gpuform:namespace:gpus_idle",
            "gpuform:resource:known",
            "gpuform:resource:free_total",
        )
    }
    declared = {"sum(gpuform:pool:gpus_declared)": {"{}": 11}}
    promtool.test(world.environment(), Case({}, [Check("9m", fires=[], samples=nothing | declared)]))


def test_series_without_labels_count_for_nothing(promtool: Promtool) -> None:
    stray = {name: always("95") for name in world.FIELDS}
    stray |= {
        selector("DCGM_EXP_XID_ERRORS_COUNT", xid=79): always("1"),
        selector("DCGM_FI_DEV_GPU_UTIL", gpu=0): always("100"),
        "kube_node_labels": always("1"),
        "kube_node_status_allocatable": always("8"),
        "kube_pod_container_resource_requests": always("8"),
        "kube_pod_status_phase": always("1"),
        "kube_node_spec_taint": always("1"),
        "up": always("0"),
        "karpenter_nodepools_limit": always("1"),
        "kube_pod_status_unschedulable": always("1"),
    }
    promtool.test(
        world.environment(), Case({**world.healthy(), **stray}, [Check("30m", fires=[], samples=HEALTHY_NOW)])
    )


HEALTHY_NOW = {name: value for name, value in HEALTHY.items() if "joules" not in name}


def test_pod_labels_and_two_exporters_change_nothing(promtool: Promtool) -> None:
    """dcgm-exporter may add a pod to each series, once for each pod, and an old exporter pod may remain."""
    twice = {}
    for name, value in world.healthy().items():
        if name.startswith(("DCGM", "kube_")):
            twice[name.replace('instance="10', 'instance="11').replace("{", '{extra="second",', 1)] = value
        if name.startswith("DCGM"):
            twice[name.replace("{", '{namespace="team",pod="one",container="main",', 1)] = value
    promtool.test(
        world.environment(), Case(world.healthy() | twice, [Check("10m", fires=[], samples=HEALTHY)])
    )


@pytest.mark.parametrize(
    ("more", "waits"),
    [({}, True), ({"managed": "true"}, False), ({"managed": "true", "podset": "main"}, True)],
)
def test_a_pod_in_a_queue_waits_for_a_gpu_only_once_it_is_admitted(
    promtool: Promtool, more: dict[str, str], waits: bool
) -> None:
    """kube-state-metrics calls both unschedulable: what Kueue holds back, and what finds no node."""
    team = {"name": "team", "namespaces": ["team"], "quota": {"whole": 4}}
    env = parse({**world.environment().resolved(), "queues": {"teams": [team]}})
    spelled = {f"label_kueue_x_k8s_io_{key}": value for key, value in more.items()}
    labelled = selector("kube_pod_labels", namespace="team", pod="queued", uid="team-queued", **spelled)
    series = {**world.healthy(), **pod("queued", None, {"nvidia_com_gpu": 1}), labelled: always("1")}
    promtool.test(
        env,
        Case(series, [Check("5m", samples={"count(gpuform:pod:units_pending)": {"{}": 1} if waits else {}})]),
    )


def test_kube_state_metrics_comes_again(promtool: Promtool) -> None:
    """Pools stay known for five minutes, so that no GPU series changes its labels meanwhile."""
    away = {
        name: value.replace("x300", "x10 stale _x7 1x300") for name, value in world.all_state_series().items()
    }
    known, every = "count(gpuform:device:util_ratio{pool!=''})", "count(gpuform:device:util_ratio)"
    inside = {known: {"{}": 13}}
    then = [
        Check("10m", fires=[], samples=inside),
        Check("13m", fires=[], samples=inside | {"gpuform:resource:allocatable": {}}),
        Check("18m", fires=[], samples={known: {}, every: {"{}": 13}}),
    ]
    promtool.test(world.environment(), Case(away | world.all_exporter_series(), then))


def test_the_engines_activity_goes_before_the_share_of_time(promtool: Promtool) -> None:
    own = dict(world.healthy())
    labels = TURNS.gpu()
    own[selector("DCGM_FI_DEV_GPU_UTIL", **labels)] = always("90")
    other = {name: value for name, value in own.items() if "GR_ENGINE" not in name}
    query = 'sum(gpuform:device:util_ratio{node="turns-0"})'
    promtool.test(
        world.environment(),
        Case(own, [Check("10m", samples={query: {"{}": 0.5}})]),
        Case(other, [Check("10m", samples={query: {"{}": 0.9}})]),
    )


_SLICE = next(SLICES.devices())
_ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_LIMIT = {selector("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", **SLICES.gpu()): always("250")}


def _power(watts: int) -> dict[str, str]:
    return {selector("DCGM_FI_DEV_POWER_USAGE", **device): always(str(watts)) for device in SLICES.devices()}


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ({}, True),
        (_LIMIT | _power(60), True),
        (_LIMIT | _power(140), False),
        ({selector("DCGM_FI_DEV_GPU_UTIL", **SLICES.gpu()): always("100")}, False),
        ({selector("DCGM_FI_DEV_XID_ERRORS", **_SLICE): always("31")}, False),
        ({selector(_ENGINE, **_SLICE): always("0.001")} | _LIMIT | _power(140), True),
    ],
    ids=["nothing else", "idle power", "power of a busy GPU", "utilisation", "an XID", "one slice above 0"],
)
def test_zeros_of_slices_count_only_if_the_card_says_nothing_else(
    promtool: Promtool, more: dict[str, str], known: bool
) -> None:
    """After an XID profiling counters stay 0 while the GPU computes [NVIDIA/DCGM#303]."""
    zeros = {selector(_ENGINE, **device): always("0") for device in SLICES.devices()}
    samples = {
        f"count({series}{{pool='slices'{profile}}})": {"{}": count} if known else {}
        for series, profile, count in (
            ("gpuform:device:util_ratio", ",GPU_I_ID!=''", 3),
            ("gpuform:pod:gpus_used", "", 1),
            ("gpuform:namespace:gpus_idle", "", 1),
        )
    }
    promtool.test(world.environment(), Case(world.healthy() | zeros | more, [Check("10m", samples=samples)]))


def test_a_paused_profiler_and_its_zeros_are_replaced_by_the_share_of_time(promtool: Promtool) -> None:
    """DCGM reports no counters while it is paused, or 0; a GPU that agrees is idle."""
    name = selector(_ENGINE, **TURNS.gpu())
    own = world.healthy() | {selector("DCGM_FI_DEV_GPU_UTIL", **TURNS.gpu()): always("90")}
    missing = {key: value for key, value in own.items() if key != name}
    zero = own | {name: always("0")}
    idle = zero | {selector("DCGM_FI_DEV_GPU_UTIL", **TURNS.gpu()): always("0")}
    query = 'sum(gpuform:device:util_ratio{node="turns-0"})'
    promtool.test(
        world.environment(),
        *(
            Case(series, [Check("10m", samples={query: {"{}": value}})])
            for series, value in ((missing, 0.9), (zero, 0.9), (idle, 0))
        ),
    )


def test_a_slice_without_counters_leaves_the_use_of_the_nodes_pods_unknown(promtool: Promtool) -> None:
    series = world.healthy()
    del series[selector(_ENGINE, **list(SLICES.devices())[1])]
    samples = {
        'count(gpuform:device:util_ratio{pool="slices"})': {"{}": 2},
        'gpuform:pod:gpus_used{pool="slices"}': {},
        'gpuform:namespace:gpus_idle{pool="slices"}': {},
        'count(gpuform:pod:gpus_used{pool="whole"})': {"{}": 1},
    }
    promtool.test(world.environment(), Case(series, [Check("10m", fires=[], samples=samples)]))


def test_a_cut_gpu_that_is_shown_as_a_whole_too_counts_once(promtool: Promtool) -> None:
    series = world.healthy() | {
        selector("DCGM_FI_PROF_GR_ENGINE_ACTIVE", **SLICES.gpu()): always("0.9"),
        selector("DCGM_FI_DEV_FB_USED", **SLICES.gpu()): always("30000"),
    }
    count = {
        'count(gpuform:device:util_ratio{pool="slices"})': {"{}": 3},
        'sum(gpuform:device:memory_used_bytes{pool="slices"})': {"{}": 3000 * MIB},
    }
    promtool.test(world.environment(), Case(series, [Check("10m", samples=count)]))
