"""Alerts about queues and scaled workloads: each fires for its cause, alone, and ends."""

from __future__ import annotations

from typing import Any

import pytest

from infra.model.environment import Environment
from tests.plan.rules import world
from tests.plan.rules.promtool import Promtool, selector
from tests.plan.rules.provoked import Row, during, only_during, together
from tests.plan.rules.world import always

pytestmark = pytest.mark.engine

_HPA = {"namespace": "team", "horizontalpodautoscaler": "keda-hpa-web"}
_INACTIVE = {**_HPA, "condition": "ScalingActive"}
_POD = {"namespace": "team", "pod": "web-5d9c7b6f4d-abcde", "uid": "1"}
_OTHER = {"namespace": "team", "pod": "web-canary-5d9c7b6f4d-abcde", "uid": "2"}
_STATE = "kube_horizontalpodautoscaler_"


def environment() -> Environment:
    web = {"name": "web", "namespace": "team", "kind": "inference", "pool": "whole", "image": "a:1"}
    scale = {"min": 1, "max": 4, "qps_per_replica": 50}
    team = {"name": "science", "namespaces": ["science"], "quota": {"whole": 4}}
    return world.environment(
        monitoring={},
        queues={"teams": [team]},
        workloads=[{**web, "scale": scale, "start_minutes": 12}],
    )


def pending(queue: str, **more: Any) -> str:
    labels = {"cluster_queue": queue, "status": "active", "replica_role": "leader", **more}
    return selector("kueue_pending_workloads", **labels)


def admitted(queue: str) -> str:
    return selector("kueue_admitted_workloads_total", cluster_queue=queue, priority_class="0")


HEALTHY = {
    pending("science"): always("0"),
    pending("theirs"): always("3"),  # not a queue of the stack
    admitted("science"): always("5"),
    selector(f"{_STATE}spec_max_replicas", **_HPA): always("4"),
    selector(f"{_STATE}status_desired_replicas", **_HPA): always("2"),
    selector(f"{_STATE}status_current_replicas", **_HPA): always("2"),
    selector(f"{_STATE}status_condition", **_INACTIVE, status="false"): always("0"),
    selector("kube_pod_status_ready", **_POD, condition="true"): always("1"),
    selector("kube_pod_status_ready", **_OTHER, condition="true"): always("0"),
    selector("kube_pod_status_ready", namespace="team", pod="web-5d9c7b6f4d-evict", condition="true"): always(
        "0"
    ),
    selector("kube_pod_status_phase", namespace="team", pod="web-5d9c7b6f4d-evict", phase="Failed"): always(
        "1"
    ),
}
ROWS = (
    Row(
        alert="GpuQueueStalled",
        severity="info",
        wait=15,
        series={pending("science"): during("2")},
        labels=[{"cluster_queue": "science"}],
    ),
    Row(
        alert="GpuScaledToMost",
        severity="warning",
        wait=15,
        series={selector(f"{_STATE}status_desired_replicas", **_HPA): during("4", "2")},
        labels=[_HPA],
    ),
    Row(
        alert="GpuScalingFailed",
        severity="warning",
        wait=10,
        series={selector(f"{_STATE}status_condition", **_INACTIVE, status="false"): during("1")},
        labels=[_HPA],
    ),
    Row(
        alert="GpuColdStartSlow",
        severity="warning",
        wait=12,
        series={
            selector(
                "kube_pod_status_ready", namespace="team", pod="web-5d9c7b6f4d-fghij", condition="true"
            ): only_during("0")
        },
        labels=[{"namespace": "team", "pod": "web-5d9c7b6f4d-fghij"}],
    ),
)


def test_each_fires_alone_and_ends(promtool: Promtool) -> None:
    promtool.test(environment(), together(world.healthy() | HEALTHY, ROWS, (15, 24, 29, 43), ended=75))


def test_what_is_admitted_or_scaled_to_zero_is_no_fault(promtool: Promtool) -> None:
    """Without pods, the autoscaler is inactive on purpose."""
    series = {
        pending("science"): always("2"),
        admitted("science"): "5+1x300",
        selector(f"{_STATE}status_condition", **_INACTIVE, status="false"): always("1"),
        selector(f"{_STATE}status_current_replicas", **_HPA): always("0"),
    }
    quiet = together(world.healthy() | HEALTHY | series, (), (43,), ended=130)
    promtool.test(environment(), quiet)
    # The same on a cluster of which the stack declares neither.
    elsewhere = {name: value for row in ROWS for name, value in row.series.items() if value}
    promtool.test(world.environment(), together(world.healthy() | HEALTHY | elsewhere, (), (43,), ended=75))
