"""What the rules record for the healthy cluster after ten minutes, by expression."""

from __future__ import annotations

from tests.plan.rules.promtool import selector
from tests.plan.rules.world import MIB

_T4 = {"gpu": 0, "UUID": "GPU-turns-0-0", "modelName": "Tesla T4"}
_A100 = {"gpu": 0, "UUID": "GPU-slices-0-0", "modelName": "NVIDIA A100-PCIE-40GB"}
_SHARE = {
    "node": "turns-0",
    "pool": "turns",
    "sharing": "time_slicing",
    "resource": "nvidia_com_gpu_shared",
}
_LARGE = {
    "namespace": "team",
    "pod": "large",
    "node": "slices-0",
    "pool": "slices",
    "sharing": "mig",
    "resource": "nvidia_com_mig_3g_20gb",
}
HEALTHY = {
    'gpuform:node:info{pool!="whole"}': {
        selector("gpuform:node:info", node="turns-0", pool="turns"): 1,
        selector("gpuform:node:info", node="turns-1", pool="turns"): 1,
        selector("gpuform:node:info", node="slices-0", pool="slices"): 1,
        selector("gpuform:node:info", node="plain-0", pool="plain"): 1,
    },
    'gpuform:device:util_ratio{node="turns-0"}': {
        selector("gpuform:device:util_ratio", node="turns-0", pool="turns", **_T4): 0.5,
    },
    'gpuform:device:memory_used_bytes{node="turns-0"}': {
        selector("gpuform:device:memory_used_bytes", node="turns-0", pool="turns", **_T4): 1000 * MIB,
    },
    'gpuform:device:memory_total_bytes{node="slices-0",GPU_I_ID="1"}': {
        selector(
            "gpuform:device:memory_total_bytes",
            node="slices-0",
            pool="slices",
            **_A100,
            GPU_I_ID=1,
            GPU_I_PROFILE="3g.20gb",
        ): 15360 * MIB,
    },
    'count(gpuform:device:util_ratio{pool="slices"})': {"{}": 3},
    # A MIG GPU draws its power once, however many instances show it.
    'gpuform:gpu:power_watts{pool="slices"}': {
        selector("gpuform:gpu:power_watts", node="slices-0", pool="slices", **_A100): 55.5,
    },
    'gpuform:gpu:temperature_celsius{node="turns-0"}': {
        selector("gpuform:gpu:temperature_celsius", node="turns-0", pool="turns", **_T4): 60,
    },
    'gpuform:gpu:rows_remapped_total{node="turns-0"}': {
        selector("gpuform:gpu:rows_remapped_total", node="turns-0", pool="turns", **_T4): 0,
    },
    'gpuform:gpu:energy_joules_total{node="turns-0"}': {
        selector("gpuform:gpu:energy_joules_total", node="turns-0", pool="turns", **_T4): 6 + 3 * 10,
    },
    'gpuform:pod:gpus_requested{pod="one"}': {
        selector("gpuform:pod:gpus_requested", namespace="team", pod="one", **_SHARE): 0.25,
    },
    # Two pods requested a share each of a GPU that is half busy.
    'gpuform:pod:gpus_used{node="turns-0"}': {
        selector("gpuform:pod:gpus_used", namespace=namespace, pod=name, **_SHARE): 0.25
        for namespace, name in (("team", "one"), ("other", "two"))
    },
    'round(gpuform:pod:gpus_requested{pod="large"} * 7, 0.001)': {
        selector("", **_LARGE): 3,
    },
    'round(gpuform:pod:gpus_used{pod="large"} * 7, 0.001)': {
        selector("", **_LARGE): 1.5,
    },
    # A finished pod requests nothing: two of the four GPUs are requested, all four are half busy.
    "gpuform:pod:gpus_used{pool='whole'}": {
        selector(
            "gpuform:pod:gpus_used",
            namespace="team",
            pod="train",
            node="whole-0",
            pool="whole",
            sharing="exclusive",
            resource="nvidia_com_gpu",
        ): 2,
    },
    'gpuform:namespace:gpus_requested{namespace="other"}': {
        selector(
            "gpuform:namespace:gpus_requested", namespace="other", pool="turns", sharing="time_slicing"
        ): 0.25,
    },
    'gpuform:namespace:gpus_used{namespace="other"}': {
        selector(
            "gpuform:namespace:gpus_used", namespace="other", pool="turns", sharing="time_slicing"
        ): 0.25,
    },
    'gpuform:namespace:gpus_idle{pool="turns",namespace="team"}': {
        selector("gpuform:namespace:gpus_idle", namespace="team", pool="turns", sharing="time_slicing"): 0,
    },
    'round(sum(gpuform:namespace:gpus_idle{pool="slices"}) * 7, 0.001)': {"{}": 1.5},
    'gpuform:pool:gpus_declared{pool="whole"}': {
        selector("gpuform:pool:gpus_declared", pool="whole", sharing="exclusive"): 8,
    },
    "round(gpuform:pool:gpus_allocatable, 0.001)": {
        selector("", pool="turns", sharing="time_slicing"): 2,
        selector("", pool="slices", sharing="mig"): 1,
        selector("", pool="whole", sharing="exclusive"): 8,
    },
    'gpuform:pool:gpus_requested{pool!="slices"}': {
        selector("gpuform:pool:gpus_requested", pool="turns", sharing="time_slicing"): 0.5,
        selector("gpuform:pool:gpus_requested", pool="whole", sharing="exclusive"): 2,
    },
    "round(gpuform:pool:gpus_used, 0.001)": {
        selector("", pool="turns", sharing="time_slicing"): 1,
        selector("", pool="slices", sharing="mig"): 0.5,
        selector("", pool="whole", sharing="exclusive"): 4,
    },
    'gpuform:resource:allocatable{node="whole-0"}': {
        selector("gpuform:resource:allocatable", node="whole-0", pool="whole", resource="nvidia_com_gpu"): 4,
        selector("gpuform:resource:allocatable", node="whole-0", pool="whole", resource="cpu"): 16,
    },
    "gpuform:resource:requested{pool='whole'}": {
        selector("gpuform:resource:requested", node="whole-0", pool="whole", resource="nvidia_com_gpu"): 2,
    },
    "gpuform:resource:limits{pool='whole'}": {
        selector("gpuform:resource:limits", node="whole-0", pool="whole", resource="nvidia_com_gpu"): 2,
    },
    "gpuform:resource:free{pool='whole'}": {
        selector("gpuform:resource:free", node="whole-0", pool="whole", resource="nvidia_com_gpu"): 2,
        selector("gpuform:resource:free", node="whole-1", pool="whole", resource="nvidia_com_gpu"): 4,
    },
    "gpuform:rules:running": {"gpuform:rules:running": 1},
    'gpuform:unit:gpus{pool="turns"}': {
        selector(
            "gpuform:unit:gpus", pool="turns", sharing="time_slicing", resource="nvidia_com_gpu_shared"
        ): 0.25,
    },
    'gpuform:device:gpus{pool="whole"}': {
        selector("gpuform:device:gpus", pool="whole", sharing="exclusive", resource="nvidia_com_gpu"): 1,
    },
    'gpuform:unit:per_node{pool="slices"}': {
        selector("gpuform:unit:per_node", pool="slices", resource="nvidia_com_mig_3g_20gb"): 1,
        selector("gpuform:unit:per_node", pool="slices", resource="nvidia_com_mig_2g_10gb"): 2,
    },
    'gpuform:node:gpus{pool="whole"}': {
        selector("gpuform:node:gpus", node="whole-0", pool="whole"): 4,
        selector("gpuform:node:gpus", node="whole-1", pool="whole"): 4,
    },
    'gpuform:resource:declared{node="turns-0"}': {
        selector(
            "gpuform:resource:declared", node="turns-0", pool="turns", resource="nvidia_com_gpu_shared"
        ): 4,
    },
    "count(gpuform:node:known)": {"{}": 6},
    'gpuform:pod:units_requested{pod="train"}': {
        selector(
            "gpuform:pod:units_requested",
            namespace="team",
            pod="train",
            node="whole-0",
            pool="whole",
            resource="nvidia_com_gpu",
        ): 2,
    },
    'gpuform:resource:gpus_used{pool="whole"}': {
        selector(
            "gpuform:resource:gpus_used",
            node=name,
            pool="whole",
            resource="nvidia_com_gpu",
            sharing="exclusive",
        ): 2
        for name in ("whole-0", "whole-1")
    },
    "gpuform:resource:known": {
        selector("gpuform:resource:known", resource=name): 1
        for name in (
            "nvidia_com_gpu",
            "nvidia_com_gpu_shared",
            "nvidia_com_mig_2g_10gb",
            "nvidia_com_mig_3g_20gb",
        )
    },
    'gpuform:resource:free_largest{resource="nvidia_com_gpu"}': {
        selector("gpuform:resource:free_largest", resource="nvidia_com_gpu"): 4,
    },
    'gpuform:resource:free_total{resource="nvidia_com_gpu"}': {
        selector("gpuform:resource:free_total", resource="nvidia_com_gpu"): 6,
    },
    'count(gpuform:pod:alive{namespace!="odd"})': {"{}": 4},
    "gpuform:pod:units_pending": {},
    "gpuform:fault:active": {},
    "gpuform:pod:pending_reason": {},
    "gpuform:resource:awaited": {},
}
