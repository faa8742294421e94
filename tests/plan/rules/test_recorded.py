"""What the rules record, under promtool: of a healthy cluster, any sharing, GKE, and missing series."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.incluster import model
from tests.plan.rules import world
from tests.plan.rules.promtool import Case, Promtool, Values, selector, shows
from tests.plan.rules.provoked import gpu_series
from tests.plan.rules.world import CONTRACT, ENVIRONMENTS, MIB, SLICES, TURNS, WHOLE, Node, always, pod

pytestmark = pytest.mark.engine

HEALTHY = world.healthy()


def recorded() -> dict[str, dict[str, float]]:
    """Samples of ``healthy.yaml`` by expression; of a series of ours they have its name."""
    found: dict[str, dict[str, float]] = {}
    file = yaml.safe_load(Path(__file__).with_name("healthy.yaml").read_text(encoding="utf-8"))
    for expression, samples in file.items():
        name = re.match(r"(?:gpuform:[a-z0-9_:]+)?", expression)
        assert name
        found[expression] = {selector(name[0], **world.with_uuid(labels)): value for value, labels in samples}
    return found


RECORDED = recorded()


def test_a_healthy_cluster_fires_nothing_and_is_recorded(promtool: Promtool) -> None:
    promtool.test(Case(HEALTHY, {10: []}, {10: RECORDED}))


def test_series_without_labels_count_for_nothing(promtool: Promtool) -> None:
    stray = {name: always("95") for name in world.FIELDS}
    stray |= {
        selector("DCGM_EXP_XID_ERRORS_COUNT", xid=79): always("1"),
        selector("DCGM_FI_DEV_GPU_UTIL", gpu=0): always("100"),
        "up": always("0"),
    }
    for name in (
        *(
            "kube_node_labels",
            "kube_node_status_allocatable",
            "kube_node_spec_taint",
            "kube_pod_status_phase",
        ),
        *("kube_pod_container_resource_requests", "kube_pod_status_unschedulable"),
        "karpenter_nodepools_limit",
    ):
        stray[name] = always("1")
    lasting = {name: value for name, value in RECORDED.items() if "joules" not in name}
    promtool.test(Case({**HEALTHY, **stray}, {30: []}, {30: lasting}))


def test_pod_labels_and_two_exporters_change_nothing(promtool: Promtool) -> None:
    """dcgm-exporter may add a pod to each series, once for each pod, and an old exporter pod may remain."""
    twice = {}
    for name, value in HEALTHY.items():
        if name.startswith(("DCGM", "kube_")):
            twice[name.replace('instance="10', 'instance="11').replace("{", '{extra="second",', 1)] = value
        if name.startswith("DCGM"):
            twice[name.replace("{", '{namespace="team",pod="one",container="main",', 1)] = value
    promtool.test(Case(HEALTHY | twice, {10: []}, {10: RECORDED}))


def test_recorded_series_have_the_labels_that_others_read_and_no_more(promtool: Promtool) -> None:
    """The series count depends on devices, pods and pools, not on labels that an exporter adds."""
    series = dict(HEALTHY)
    for name, value in HEALTHY.items():
        if name.startswith(("DCGM", "kube_pod_container")):
            series[name.replace("{", '{image="y",endpoint="z",', 1)] = value
    series |= gpu_series(TURNS, "DCGM_EXP_XID_ERRORS_COUNT", always("1"), xid=79, window_size_in_ms=300000)
    one = {f"group without ({of.replace(' ', ',')}) ({name})": 1.0 for name, of in CONTRACT.items()}
    promtool.test(shows(series, one))


def test_the_health_loop_asks_for_nodes_with_all_gpus_measured(promtool: Promtool) -> None:
    """A MIG GPU counts once; a node that lost one of four GPUs, or its exporter, counts as not measured."""
    there = {"turns-0": 1, "turns-1": 1, "slices-0": 1, "whole-0": 4, "whole-1": 4}
    every = {selector("", node=node): float(gpus) for node, gpus in there.items()}
    rest = {key: gpus for key, gpus in every.items() if "whole-0" not in key and "turns-0" not in key}
    promtool.test(
        shows(HEALTHY, {model.MEASURED: every}),
        shows(world.without("GPU-whole-0-3", "GPU-turns-0-"), {model.MEASURED: rest}),
        shows(world.without("kube_"), {model.MEASURED: every}),
        shows({}, {model.MEASURED: {}}),
    )


def test_hours_are_of_the_time_that_was_seen(promtool: Promtool) -> None:
    """Half of a GPU for half an hour; after the pod is gone, its hours still count for the hour."""
    ended = world.replaced("x300", "x30 stale", pod("half", WHOLE, {"nvidia_com_gpu": 1}, "gone"))
    of = '{namespace="gone",pool="whole",sharing="exclusive"}'
    hours = {
        f"sum(round({name}{of}, 0.05))": value
        for name, value in (
            ("gpuform:namespace:gpu_hours_requested_1h", 0.5),
            ("gpuform:namespace:gpu_hours_used_1h", 0.35),
            ("gpuform:namespace:gpu_hours_idle_1h", 0.15),
        )
    }
    promtool.test(shows({**HEALTHY, **ended}, hours, minute=60))


def of_card(field: str, value: str, node: Node = SLICES) -> dict[str, str]:
    return {selector(field, **node.gpu()): always(value)}


def of_slices(field: str, value: str) -> dict[str, str]:
    return {selector(field, **device): always(value) for device in SLICES.devices()}


ENGINE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
FIRST, SECOND, _ = SLICES.devices()
ZEROS = HEALTHY | of_slices(ENGINE, "0")
BUSY = of_slices("DCGM_FI_DEV_POWER_USAGE", "140") | of_card("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "250")
IDLE = BUSY | of_slices("DCGM_FI_DEV_POWER_USAGE", "60")
USED = 'sum(gpuform:device:util_ratio{node="turns-0"})'
OF_SLICES = {
    "count(gpuform:device:util_ratio{pool='slices',GPU_I_ID!=''})": 3,
    "count(gpuform:pod:gpus_used{pool='slices'})": 1,
    "count(gpuform:namespace:gpus_idle{pool='slices'})": 1,
}
NO_USE: dict[str, Values] = {name: {} for name in OF_SLICES}
LAST_SEEN = world.replaced("x300", "x10 stale", world.all_state_series())
CHANGED = {
    **LAST_SEEN,
    **world.all_exporter_series(),
    world.labelled(WHOLE): "1x7 stale",
    world.labelled(WHOLE, label_gpuform_io_pool="turns"): "_x8 1x2 stale",
}
ONE_POOL = {"count(gpuform:node:info)": 6, "count(gpuform:gpu:temperature_celsius)": 11}
INIT = selector(
    "kube_pod_init_container_resource_requests",
    **{"namespace": "team", "pod": "train", "uid": "team-train", "node": "whole-0"},
    **{"container": "warm", "resource": "nvidia_com_gpu", "unit": "integer"},
)
OF_TRAIN = "sum(gpuform:pod:gpus_requested{pool='whole'})"
CASES: dict[str, Case] = {
    # The node's use is neither idle nor used; requests stay.
    "the exporter of a node is away": Case(
        world.without("GPU-slices-0"),
        {9: []},
        {
            9: {
                'gpuform:pod:gpus_used{pool="slices"}': {},
                'gpuform:namespace:gpus_idle{pool="slices"}': {},
                'gpuform:pool:gpus_used{pool="slices"}': {},
                'count(gpuform:pod:gpus_requested{pool="slices"})': 1,
                'sum(gpuform:pool:gpus_used{pool="whole"})': 4,
            }
        },
    ),
    # If it had two pools, every rule that adds the pool would fail, for the GPUs of all nodes.
    "a node changed its pool before kube-state-metrics went away": Case(
        CHANGED, samples=dict.fromkeys((9, 11, 14), ONE_POOL)
    ),
    # Only facts: no pool reports 0 of anything that was not counted.
    "nothing is there": Case(
        {},
        {9: []},
        {
            9: {
                "sum(gpuform:pool:gpus_declared)": 11,
                **{
                    f"gpuform:{name}": {}
                    for name in (
                        *("node:info", "device:util_ratio", "pod:gpus_requested", "pool:gpus_allocatable"),
                        *("namespace:gpus_idle", "resource:known", "resource:free_total"),
                    )
                },
            }
        },
    ),
    # Pools stay known for five minutes, so that no GPU series changes its labels meanwhile.
    "kube-state-metrics comes again": Case(
        world.replaced("stale", "stale _x7 1x300", LAST_SEEN) | world.all_exporter_series(),
        {10: [], 13: [], 18: []},
        {
            10: {"count(gpuform:device:util_ratio{pool!=''})": 13},
            13: {"count(gpuform:device:util_ratio{pool!=''})": 13, "gpuform:resource:allocatable": {}},
            18: {"gpuform:device:util_ratio{pool!=''}": {}, "count(gpuform:device:util_ratio)": 13},
        },
    ),
    "engine activity goes before utilisation": shows(HEALTHY | of_card(UTIL, "90", TURNS), {USED: 0.5}),
    # DCGM reports no counters while it is paused, or 0; a GPU that agrees is idle.
    "utilisation without activity": shows(world.without(ENGINE) | of_card(UTIL, "90", TURNS), {USED: 0.9}),
    "utilisation beside an activity of 0": shows(
        HEALTHY | of_card(ENGINE, "0", TURNS) | of_card(UTIL, "90", TURNS), {USED: 0.9}
    ),
    "both are 0": shows(HEALTHY | of_card(ENGINE, "0", TURNS) | of_card(UTIL, "0", TURNS), {USED: 0}),
    # After an XID profiling counters stay 0 while the GPU computes [NVIDIA/DCGM#303].
    "zeros of slices, and nothing else": shows(ZEROS, OF_SLICES),
    "zeros of slices, and the power of an idle GPU": shows(ZEROS | IDLE, OF_SLICES),
    "zeros of slices, and the power of a busy GPU": shows(ZEROS | BUSY, NO_USE),
    "zeros of slices, and utilisation of the card": shows(ZEROS | of_card(UTIL, "100"), NO_USE),
    "zeros of slices, and an XID": shows(
        ZEROS | {selector("DCGM_FI_DEV_XID_ERRORS", **FIRST): always("31")}, NO_USE
    ),
    "one slice above 0": shows(ZEROS | BUSY | {selector(ENGINE, **FIRST): always("0.001")}, OF_SLICES),
    # The use of the node's pods is unknown, too.
    "a slice without counters": Case(
        world.without(selector(ENGINE, **SECOND)),
        {10: []},
        {
            10: {
                'count(gpuform:device:util_ratio{pool="slices"})': 2,
                'gpuform:pod:gpus_used{pool="slices"}': {},
                'gpuform:namespace:gpus_idle{pool="slices"}': {},
                'count(gpuform:pod:gpus_used{pool="whole"})': 1,
            }
        },
    ),
    "a cut GPU that is shown as a whole too counts once": shows(
        HEALTHY | of_card(ENGINE, "0.9") | of_card("DCGM_FI_DEV_FB_USED", "30000"),
        {
            'count(gpuform:device:util_ratio{pool="slices"})': 3,
            'sum(gpuform:device:memory_used_bytes{pool="slices"})': 3000 * MIB,
        },
    ),
    "an init container that asks for less": shows(HEALTHY | {INIT: always("1")}, {OF_TRAIN: 2}),
    "an init container that asks for more": shows(HEALTHY | {INIT: always("3")}, {OF_TRAIN: 3}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_only_what_is_known_is_recorded(promtool: Promtool, case: Case) -> None:
    promtool.test(case)


def test_a_pod_in_a_queue_waits_for_a_gpu_only_once_it_is_admitted(promtool: Promtool) -> None:
    """kube-state-metrics calls both unschedulable: what Kueue holds back, and what finds no node."""

    def queued(pending: Values, **labels: str) -> Case:
        spelled = {f"label_kueue_x_k8s_io_{key}": value for key, value in labels.items()}
        labelled = selector("kube_pod_labels", namespace="team", pod="queued", uid="team-queued", **spelled)
        series = {**HEALTHY, **pod("queued", None, {"nvidia_com_gpu": 1}), labelled: always("1")}
        return shows(series, {"count(gpuform:pod:units_pending)": pending}, minute=5)

    promtool.test(
        queued(1),
        queued({}, managed="true"),
        queued(1, managed="true", podset="main"),
        env=ENVIRONMENTS["scaled"],
    )


def node(**more: Any) -> Node:
    return replace(Node("n", "p0"), **more)


def of(*nodes: Node) -> dict[str, str]:
    """Scrapes of exporters and kube-state-metrics for the nodes."""
    found: dict[str, str] = {}
    for one in nodes:
        found |= world.node_series(one) | world.exporter_series(one)
    return found


def sums(values: Mapping[str, float]) -> dict[str, Values]:
    """The sum of each series, rounded to a thousandth."""
    return {f"round(sum(gpuform:{name}), 0.001)": value for name, value in values.items()}


THREE = tuple((device["GPU_I_ID"], device["GPU_I_PROFILE"]) for device in SLICES.devices())
SEVEN = tuple((number, "1g.5gb") for number in range(7, 14))
SHARES = {"nvidia_com_mig_3g_20gb_shared": 4, "nvidia_com_mig_2g_10gb_shared": 8}
PARTLY_CUT = node(
    model="A100",
    instances=THREE,
    offers={"nvidia_com_gpu": 1, "nvidia_com_mig_3g_20gb": 1, "nvidia_com_mig_2g_10gb": 2},
)
KINDS: dict[str, tuple[Node, list[dict[str, int]], dict[str, float]]] = {
    "mps": (
        node(offers={"nvidia_com_gpu": 4}),
        [{"nvidia_com_gpu": 1}],
        {"pod:gpus_requested": 0.25, "pod:gpus_used": 0.5, "namespace:gpus_idle": 0,
         "pool:gpus_allocatable": 1},
    ),
    # Two shares of the large slice of one of two GPUs; both GPUs' large slices are half busy.
    "shared slices": (
        node(model="A100", gpus=2, instances=THREE, offers=SHARES),
        [{"nvidia_com_mig_3g_20gb_shared": 1}] * 2,
        {"pod:gpus_requested": 0.429, "pod:gpus_used": 0.429, "pool:gpus_allocatable": 2,
         "pool:gpus_used": 1},
    ),
    # Slices under the name of the GPU.
    "single": (
        node(model="A100", instances=SEVEN, offers={"nvidia_com_gpu": 7}),
        [{"nvidia_com_gpu": 2}],
        {"pod:gpus_requested": 0.286, "pod:gpus_used": 0.5, "pool:gpus_allocatable": 1,
         "pool:gpus_used": 0.5},
    ),
    # The whole GPU's use does not count for the slices.
    "partly cut": (
        PARTLY_CUT,
        [{"nvidia_com_gpu": 1}],
        {"pod:gpus_used": 0.9, "pool:gpus_used": 1.4, "pool:gpus_allocatable": 2},
    ),
}  # fmt: skip
"""A node, what its pods request, and the sums of the recorded series."""


@pytest.mark.parametrize("kind", KINDS)
def test_shares_and_slices_are_parts_of_gpus(promtool: Promtool, kind: str) -> None:
    one, pods, values = KINDS[kind]
    series = of(one)
    if one is PARTLY_CUT:
        series[selector(ENGINE, **one.gpu(1))] = always("0.9")
    for index, asks in enumerate(pods):
        series |= pod(f"pod-{index}", one, asks)
    promtool.test(shows(series, sums(values)), env=ENVIRONMENTS[kind])


def test_requests_of_claimed_gpus_are_not_known_but_their_use(promtool: Promtool) -> None:
    samples: dict[str, Values] = {"gpuform:pod:gpus_requested": {}, "gpuform:pool:gpus_requested": {}}
    samples |= sums({"pool:gpus_used": 0.5, "pool:gpus_declared": 1})
    promtool.test(Case(of(node(model="A100")), {40: []}, {40: samples}), env=ENVIRONMENTS["claimed"])


def test_nodes_of_a_pool_may_differ_in_size(promtool: Promtool) -> None:
    """One and four GPUs in one pool, as Karpenter's label says."""
    series: dict[str, str] = {}
    for name, gpus in (("small", 1), ("large", 4)):
        one = Node(name, "p0", gpus=gpus, offers={"nvidia_com_gpu_shared": 3 * gpus})
        told = of(one)
        del told[world.labelled(one)]
        told[world.labelled(one, label_karpenter_k8s_aws_instance_gpu_count=str(gpus))] = always("1")
        series |= told
    values = {"pool:gpus_declared": 5, "pool:gpus_allocatable": 5, "resource:declared": 15}
    promtool.test(Case(series, {40: []}, {10: sums(values)}), env=ENVIRONMENTS["nodes of different sizes"])


GKE_MODEL = {"model": "nvidia-tesla-t4"}
CLOUD = "kubernetes_io:node_accelerator_"
GKE: dict[str, tuple[tuple[str, str, str], dict[str, str]]] = {
    "Cloud Monitoring": (
        (f"{CLOUD}duty_cycle", f"{CLOUD}memory_used", f"{CLOUD}memory_total"),
        {"node_name": "n", "accelerator_id": "7", **GKE_MODEL, "make": "nvidia"},
    ),
    "the device plugin": (
        ("duty_cycle_gpu_node", "memory_used_gpu_node", "memory_total_gpu_node"),
        {"node_name": "n", "accelerator_index": "7", **GKE_MODEL, "make": "nvidia"},
    ),
    "the kubelet": (
        (
            "container_accelerator_duty_cycle",
            "container_accelerator_memory_used_bytes",
            "container_accelerator_memory_total_bytes",
        ),
        {"node": "n", "acc_id": "7", **GKE_MODEL, "pod": "a", "container": "main"},
    ),
}
ON_GKE = ENVIRONMENTS["existing, perhaps GKE"]


@pytest.mark.parametrize("form", GKE)
def test_gke(promtool: Promtool, form: str) -> None:
    """GKE's metrics are recorded as DCGM's, and no exporter is reported missing; DCGM's take precedence."""
    names, labels = GKE[form]
    one = Node("n", "gpu", offers={"nvidia_com_gpu": 1})
    series = world.node_series(one) | pod("a", one, {"nvidia_com_gpu": 1})
    series |= {
        selector(name, **labels): always(value)
        for name, value in zip(names, ("40", "1024", "4096"), strict=True)
    }
    as_dcgm = {"node": "n", "pool": "gpu", "gpu": 7, "UUID": 7, "modelName": "nvidia-tesla-t4"}
    samples: dict[str, Values] = {
        name: {selector(name, **as_dcgm): value}
        for name, value in (
            ("gpuform:device:util_ratio", 0.4),
            ("gpuform:device:memory_used_bytes", 1024),
            ("gpuform:device:memory_total_bytes", 4096),
        )
    }
    both = {key.replace('gpu="0"', 'gpu="7"'): value for key, value in world.exporter_series(one).items()}
    promtool.test(
        Case(series, {30: []}, {30: samples | sums({"pod:gpus_used": 0.4})}),
        shows(both | series, sums({"device:util_ratio": 0.5}), minute=30),
        env=ON_GKE,
    )


def test_a_tpu_of_gke_is_recorded(promtool: Promtool) -> None:
    labels = {"node_name": "t", "accelerator_id": "0", "model": "tpu-v5", "tpu_topology": "2x4"}
    series = {
        selector(f"{CLOUD}tensorcore_utilization", **labels): always("30"),
        selector(f"{CLOUD}memory_total", **labels): always("100"),
    }
    want = {selector("gpuform:device:util_ratio", node="t", gpu=0, UUID=0, modelName="tpu-v5"): 0.3}
    promtool.test(shows(series, {"gpuform:device:util_ratio": want}), env=ON_GKE)
