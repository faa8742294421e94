"""Faults of nodes, pods and the health loop, each with the alert that must follow."""

from __future__ import annotations

from typing import Any

from tests.plan.rules import world
from tests.plan.rules.promtool import selector
from tests.plan.rules.provoked import Row, during, not_during, only_during
from tests.plan.rules.world import SLICES, TURNS, TURNS_1, WHOLE, WHOLE_1, always, pod

_PLUGIN = {"namespace": "gpu-operator", "pod": "nvidia-device-plugin-daemonset-x1"}
_PLUGIN_2 = {"namespace": "gpu-operator", "pod": "nvidia-device-plugin-daemonset-x2"}
_QUOTA = {"namespace": "poor", "resourcequota": "gpuform-gpus", "resource": "requests.nvidia.com/gpu"}


def node(of: world.Node, **more: Any) -> dict[str, Any]:
    return {"node": of.name, "pool": of.pool, **more}


def relabelled(of: world.Node, label: str, value: str) -> dict[str, str]:
    """Another value of a node label, from minute 10 to 45."""
    states = {f"label_nvidia_com_{label}": value}
    return {world.labelled(of): not_during("1x300"), world.labelled(of, **states): only_during()}


def waiting(name: str, resource: str, amount: int = 1, namespace: str = "team") -> dict[str, str]:
    """A pod that is unschedulable from minute 10 to 45."""
    return {
        series: only_during(value.split("x")[0])
        for series, value in pod(name, None, {resource: amount}, namespace, "Pending").items()
    }


def pending(name: str, resource: str, reason: str) -> dict[str, str]:
    return {"namespace": "team", "pod": name, "resource": resource, "reason": reason}


ROWS = (
    Row(
        alert="GpuDcgmExporterAbsent",
        severity="warning",
        wait=10,
        series={
            name: not_during(value) if "DCGM" in name else during("0", "1")
            for name, value in world.exported(SLICES).items()
        },
        labels=[node(SLICES)],
    ),
    Row(
        alert="GpuNodeOffersFewer",
        severity="warning",
        wait=15,
        series={world.allocatable(WHOLE_1, "nvidia_com_gpu"): during("3", "4")},
        labels=[node(WHOLE_1, resource="nvidia_com_gpu")],
    ),
    Row(  # the resource does not exist
        alert="GpuNodeOffersFewer",
        severity="warning",
        wait=15,
        series={world.allocatable(TURNS_1, "nvidia_com_gpu_shared"): not_during("4x300")},
        labels=[node(TURNS_1, resource="nvidia_com_gpu_shared")],
    ),
    Row(
        alert="GpuDevicePluginCrashLooping",
        severity="critical",
        wait=5,
        series={
            selector("kube_pod_info", **_PLUGIN, node="turns-0"): always("1"),
            selector(
                "kube_pod_container_status_restarts_total", **_PLUGIN, container="main"
            ): "7x9 7+1x30 37x300",
        },
        labels=[node(TURNS, **_PLUGIN)],
    ),
    Row(
        alert="GpuDevicePluginCrashLooping",
        severity="critical",
        wait=5,
        series={
            selector("kube_pod_info", **_PLUGIN_2, node="slices-0"): always("1"),
            selector(
                "kube_pod_container_status_waiting_reason",
                **_PLUGIN_2,
                container="main",
                reason="CrashLoopBackOff",
            ): only_during(),
        },
        labels=[node(SLICES, **_PLUGIN_2)],
    ),
    Row(
        alert="GpuStartupTaintStuck",
        severity="warning",
        wait=20,
        series={
            selector(
                "kube_node_spec_taint", node="turns-0", key="gpuform.io/gpu-not-ready", effect="NoSchedule"
            ): only_during()
        },
        labels=[node(TURNS)],
    ),
    Row(
        alert="GpuMigConfigFailed",
        severity="critical",
        wait=2,
        series=relabelled(SLICES, "mig_config_state", "failed"),
        labels=[node(SLICES, state="failed")],
    ),
    Row(
        alert="GpuMigConfigPending",
        severity="warning",
        wait=30,
        series=relabelled(WHOLE, "mig_config_state", "pending"),
        labels=[node(WHOLE, state="pending")],
    ),
    Row(
        alert="GpuDriverUpgradeFailed",
        severity="critical",
        wait=2,
        series={
            world.labelled(WHOLE_1): not_during("1x300"),
            world.labelled(
                WHOLE_1, label_nvidia_com_gpu_driver_upgrade_state="upgrade-failed"
            ): only_during(),
        },
        labels=[node(WHOLE_1, state="upgrade-failed")],
    ),
    Row(
        alert="GpuPodPending",
        severity="warning",
        wait=10,
        series=waiting("typo", "nvidia_com_mig_9g_90gb"),
        labels=[pending("typo", "nvidia_com_mig_9g_90gb", "no_such_resource")],
    ),
    Row(
        alert="GpuPodPending",
        severity="warning",
        wait=10,
        series=waiting("giant", "nvidia_com_gpu", 5),
        labels=[pending("giant", "nvidia_com_gpu", "too_large")],
    ),
    Row(  # three are free on one node: another cause
        alert="GpuPodPending",
        severity="warning",
        wait=10,
        series=waiting("picky", "nvidia_com_gpu", 3),
        labels=[pending("picky", "nvidia_com_gpu", "unschedulable")],
    ),
    Row(  # two are free on one node and three on the other
        alert="GpuFragmentation",
        severity="warning",
        wait=10,
        series=waiting("wide", "nvidia_com_gpu", 4),
        labels=[pending("wide", "nvidia_com_gpu", "fragmented")],
    ),
    Row(
        alert="GpuPodPending",
        severity="warning",
        wait=10,
        series=waiting("late", "nvidia_com_mig_3g_20gb"),
        labels=[pending("late", "nvidia_com_mig_3g_20gb", "pool_full")],
    ),
    Row(  # seven shares are free, none is usable: one node is not validated, the other offers none
        alert="GpuPodPending",
        severity="warning",
        wait=10,
        series=waiting("early", "nvidia_com_gpu_shared"),
        labels=[pending("early", "nvidia_com_gpu_shared", "not_ready")],
    ),
    Row(
        alert="GpuPodPending",
        severity="warning",
        wait=10,
        series={
            selector("kube_resourcequota", **_QUOTA, type="hard"): always("2"),
            selector("kube_resourcequota", **_QUOTA, type="used"): during("2", "1"),
            selector(
                "kube_deployment_status_condition",
                namespace="poor",
                deployment="web",
                condition="ReplicaFailure",
                status="true",
            ): always("1"),
        },
        labels=[{"namespace": "poor", "deployment": "web", "reason": "quota"}],
    ),
    Row(
        alert="GpuSharedMemoryNearlyFull",
        severity="warning",
        wait=10,
        series={
            selector("DCGM_FI_DEV_FB_USED", **TURNS.gpu()): during("15000", "1000"),
            selector("DCGM_FI_DEV_FB_FREE", **TURNS.gpu()): during("10", "14000"),
        },
        labels=[
            node(
                TURNS,
                namespace=namespace,
                pod=name,
                sharing="time_slicing",
                resource="nvidia_com_gpu_shared",
            )
            for namespace, name in (("team", "one"), ("other", "two"))
        ],
    ),
    Row(  # a GPU with one pod may be full
        alert="GpuSharedMemoryNearlyFull",
        severity="warning",
        series={selector("DCGM_FI_DEV_FB_FREE", **WHOLE.gpu(1)): during("0", "14000")},
        labels=[],
    ),
    Row(
        alert="GpuHealthBreakerOpen",
        severity="critical",
        series={selector("gpuform_health_breaker_open", job="gpuform-health"): during("1")},
        labels=[{}],
    ),
    Row(
        alert="GpuHealthActionFailed",
        severity="warning",
        series={
            selector(
                "gpuform_health_actions_total",
                **{"node": "whole-0", "class": "reset", "action": "cordon", "result": result},
            ): values
            for result, values in (("failed", "_x10 1+1x35 36x300"), ("done", "5+1x300"))
        },
        labels=[{"node": "whole-0", "class": "reset", "action": "cordon"}],
    ),
)
