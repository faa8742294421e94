"""Every kind of sharing, nodes of different sizes, and GKE: what the rules record, under promtool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.model.environment import Environment
from tests.plan.rules import test_check as environments
from tests.plan.rules import world
from tests.plan.rules.promtool import Case, Check, Promtool, selector
from tests.plan.rules.test_check import CONTRACT, embedded
from tests.plan.rules.world import TURNS, Node, always, pod

pytestmark = pytest.mark.engine

_SLICES = ((1, "3g.20gb"), (5, "2g.10gb"), (6, "2g.10gb"))
_SEVEN = tuple((number, "1g.5gb") for number in range(7, 14))


def node(**more: Any) -> Node:
    return replace(Node("n", "p0"), **more)


def of(*nodes: Node) -> dict[str, str]:
    """Scrapes of exporters and kube-state-metrics for the nodes."""
    found: dict[str, str] = {}
    for node in nodes:
        found |= world.node_series(node) | world.exporter_series(node)
    return found


def ask(promtool: Promtool, env: Environment, series: dict[str, str], **values: float) -> None:
    """Check the sum of each series, rounded to a thousandth."""
    samples = {
        f"round(sum(gpuform:{name.replace('__', ':')}), 0.001)": {"{}": value}
        for name, value in values.items()
    }
    promtool.test(env, Case(series, [Check("10m", samples=samples)]))


_TURNS = {"nvidia_com_mig_3g_20gb_shared": 4, "nvidia_com_mig_2g_10gb_shared": 8}
_KINDS: dict[str, tuple[Node, list[dict[str, int]], dict[str, float]]] = {
    "mps": (
        node(offers={"nvidia_com_gpu": 4}),
        [{"nvidia_com_gpu": 1}],
        {"pod__gpus_requested": 0.25, "pod__gpus_used": 0.5, "namespace__gpus_idle": 0,
         "pool__gpus_allocatable": 1},
    ),
    # Two shares of the large slice of one of two GPUs; both GPUs' large slices are half busy.
    "shared slices": (
        node(model="A100", gpus=2, instances=_SLICES, offers=_TURNS),
        [{"nvidia_com_mig_3g_20gb_shared": 1}] * 2,
        {"pod__gpus_requested": 0.429, "pod__gpus_used": 0.429, "pool__gpus_allocatable": 2,
         "pool__gpus_used": 1},
    ),
    # Slices under the name of the GPU.
    "single": (
        node(model="A100", instances=_SEVEN, offers={"nvidia_com_gpu": 7}),
        [{"nvidia_com_gpu": 2}],
        {"pod__gpus_requested": 0.286, "pod__gpus_used": 0.5, "pool__gpus_allocatable": 1,
         "pool__gpus_used": 0.5},
    ),
}  # fmt: skip
"""A node, what its pods request, and the sums of the recorded series."""


@pytest.mark.parametrize("kind", _KINDS)
def test_shares_and_slices(promtool: Promtool, kind: str) -> None:
    one, pods, values = _KINDS[kind]
    series = of(one)
    for index, asks in enumerate(pods):
        series |= pod(f"pod-{index}", one, asks)
    ask(promtool, embedded(environments.ODD[kind]), series, **values)


def test_a_node_of_which_one_gpu_is_cut(promtool: Promtool) -> None:
    """The whole GPU's use does not count for the slices."""
    offers = {"nvidia_com_gpu": 1, "nvidia_com_mig_3g_20gb": 1, "nvidia_com_mig_2g_10gb": 2}
    one = node(model="A100", gpus=1, instances=_SLICES, offers=offers)
    whole = {**one.gpu(1), "gpu": 1}
    series = of(one) | pod("a", one, {"nvidia_com_gpu": 1})
    series[selector("DCGM_FI_PROF_GR_ENGINE_ACTIVE", **whole)] = always("0.9")
    ask(
        promtool,
        embedded(environments.ODD["partly cut"]),
        series,
        pod__gpus_used=0.9,
        pool__gpus_used=1.4,
        pool__gpus_allocatable=2,
    )


def test_gpus_that_are_claimed(promtool: Promtool) -> None:
    """Claims do not show which pod has a GPU; how busy GPUs are is known."""
    one = node(model="A100", offers={})
    nothing = {"gpuform:pod:gpus_requested": {}, "gpuform:pool:gpus_requested": {}}
    used = {"sum(gpuform:pool:gpus_used)": {"{}": 0.5}, "sum(gpuform:pool:gpus_declared)": {"{}": 1}}
    env = embedded(environments.ODD["claimed"])
    promtool.test(env, Case(of(one), [Check("40m", fires=[], samples=nothing | used)]))


def test_nodes_of_different_sizes(promtool: Promtool) -> None:
    """One and four GPUs in one pool, as Karpenter's label says."""
    env = environments.counts()
    series: dict[str, str] = {}
    for name, gpus in (("small", 1), ("large", 4)):
        one = Node(name, "p0", gpus=gpus, offers={"nvidia_com_gpu_shared": 3 * gpus})
        told = world.node_series(one)
        del told[world.labelled(one)]
        told[world.labelled(one, label_karpenter_k8s_aws_instance_gpu_count=str(gpus))] = always("1")
        series |= told | world.exporter_series(one)
    ask(promtool, env, series, pool__gpus_declared=5, pool__gpus_allocatable=5, resource__declared=15)
    promtool.test(env, Case(series, [Check("40m", fires=[])]))


def test_init_containers_count_where_they_ask_for_more(promtool: Promtool) -> None:
    series = world.healthy()
    who = {"namespace": "team", "pod": "train", "uid": "team-train", "node": "whole-0"}
    what = {"container": "warm", "resource": "nvidia_com_gpu", "unit": "integer"}
    init = selector("kube_pod_init_container_resource_requests", **who, **what)
    for values, total in (("1x300", 2), ("3x300", 3)):
        query = {"sum(gpuform:pod:gpus_requested{pool='whole'})": {"{}": total}}
        promtool.test(world.environment(), Case({**series, init: values}, [Check("10m", samples=query)]))


_GKE = {
    "Cloud Monitoring": (
        "kubernetes_io:node_accelerator_duty_cycle",
        "kubernetes_io:node_accelerator_memory_used",
        "kubernetes_io:node_accelerator_memory_total",
        {"node_name": "n", "accelerator_id": "7", "model": "nvidia-tesla-t4", "make": "nvidia"},
    ),
    "the device plugin": (
        "duty_cycle_gpu_node",
        "memory_used_gpu_node",
        "memory_total_gpu_node",
        {"node_name": "n", "accelerator_index": "7", "model": "nvidia-tesla-t4", "make": "nvidia"},
    ),
    "the kubelet": (
        "container_accelerator_duty_cycle",
        "container_accelerator_memory_used_bytes",
        "container_accelerator_memory_total_bytes",
        {"node": "n", "acc_id": "7", "model": "nvidia-tesla-t4", "pod": "a", "container": "main"},
    ),
}


@pytest.mark.parametrize("form", _GKE)
def test_gke(promtool: Promtool, form: str) -> None:
    """GKE's metrics are recorded as DCGM's, and no exporter is reported missing; DCGM's take precedence."""
    duty, used, total, labels = _GKE[form]
    one = Node("n", "gpu", offers={"nvidia_com_gpu": 1})
    series = world.node_series(one) | pod("a", one, {"nvidia_com_gpu": 1})
    series |= {selector(duty, **labels): always("40"), selector(used, **labels): always("1024")}
    series[selector(total, **labels)] = always("4096")
    named = {"node": "n", "pool": "gpu", "gpu": 7, "UUID": 7, "modelName": "nvidia-tesla-t4"}
    samples = {
        name: {selector(name, **named): value}
        for name, value in (
            ("gpuform:device:util_ratio", 0.4),
            ("gpuform:device:memory_used_bytes", 1024),
            ("gpuform:device:memory_total_bytes", 4096),
        )
    }
    samples["sum(gpuform:pod:gpus_used)"] = {"{}": 0.4}
    promtool.test(environments.existing(), Case(series, [Check("30m", fires=[], samples=samples)]))
    own = world.exporter_series(replace(one, gpus=1)) | series
    both = {key.replace('gpu="0"', 'gpu="7"'): value for key, value in own.items()}
    first = {"sum(gpuform:device:util_ratio)": {"{}": 0.5}}
    promtool.test(environments.existing(), Case(both, [Check("30m", samples=first)]))


def test_a_tpu(promtool: Promtool) -> None:
    labels = {"node_name": "t", "accelerator_id": "0", "model": "tpu-v5", "tpu_topology": "2x4"}
    series = {selector("kubernetes_io:node_accelerator_tensorcore_utilization", **labels): always("30")}
    series |= {selector("kubernetes_io:node_accelerator_memory_total", **labels): always("100")}
    want = {selector("gpuform:device:util_ratio", node="t", gpu=0, UUID=0, modelName="tpu-v5"): 0.3}
    promtool.test(
        environments.existing(), Case(series, [Check("10m", samples={"gpuform:device:util_ratio": want})])
    )


def test_recorded_series_have_the_labels_that_others_read_and_no_more(promtool: Promtool) -> None:
    """The series count depends on devices, pods and pools, not on labels that an exporter adds."""
    series = world.healthy()
    for name, value in world.healthy().items():
        if name.startswith(("DCGM", "kube_pod_container")):
            series[name.replace("{", '{image="y",endpoint="z",', 1)] = value
    labels = {**TURNS.gpu(), "xid": 79, "window_size_in_ms": 300000}
    series[selector("DCGM_EXP_XID_ERRORS_COUNT", **labels)] = always("1")
    samples = {
        f"group without ({names.replace(' ', ',')}) ({name})": {"{}": 1.0} for name, names in CONTRACT.items()
    }
    promtool.test(world.environment(), Case(series, [Check("10m", samples=samples)]))
