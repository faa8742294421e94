"""Alerts about queues and scaled workloads: each fires for its cause, alone, and ends."""

from __future__ import annotations

import pytest

from infra.model.environment import Environment
from tests.plan.rules import world
from tests.plan.rules.promtool import Promtool, selector
from tests.plan.rules.provoked import Row, during, only_during, together
from tests.plan.rules.world import always

pytestmark = pytest.mark.engine

HPA = {"namespace": "team", "horizontalpodautoscaler": "keda-hpa-web"}


def environment() -> Environment:
    web = {"name": "web", "namespace": "team", "kind": "inference", "pool": "whole", "image": "a:1"}
    scale = {"min": 1, "max": 4, "qps_per_replica": 50}
    team = {"name": "science", "namespaces": ["science"], "quota": {"whole": 4}}
    return world.environment(
        monitoring={},
        queues={"teams": [team]},
        workloads=[{**web, "scale": scale, "start_minutes": 12}],
    )


def hpa(name: str, **labels: str) -> str:
    return selector(f"kube_horizontalpodautoscaler_{name}", **HPA, **labels)


def pending(queue: str) -> str:
    return selector("kueue_pending_workloads", cluster_queue=queue, status="active", replica_role="leader")


def ready(pod: str) -> str:
    return selector("kube_pod_status_ready", namespace="team", pod=pod, condition="true")


WANTS, HAS = hpa("status_desired_replicas"), hpa("status_current_replicas")
INACTIVE = hpa("status_condition", condition="ScalingActive", status="false")
ADMITTED = selector("kueue_admitted_workloads_total", cluster_queue="science", priority_class="0")
EVICTED, LATE = "web-5d9c7b6f4d-evict", "web-5d9c7b6f4d-fghij"
HEALTHY = {
    pending("science"): always("0"),
    pending("theirs"): always("3"),  # not a queue of the stack
    ADMITTED: always("5"),
    hpa("spec_max_replicas"): always("4"),
    WANTS: always("2"),
    HAS: always("2"),
    INACTIVE: always("0"),
    ready("web-5d9c7b6f4d-abcde"): always("1"),
    ready("web-canary-5d9c7b6f4d-abcde"): always("0"),  # of another Deployment
    ready(EVICTED): always("0"),
    selector("kube_pod_status_phase", namespace="team", pod=EVICTED, phase="Failed"): always("1"),
}
ROWS = tuple(
    Row(alert=alert, severity=severity, wait=wait, series={series: values}, labels=[labels])
    for alert, severity, wait, series, values, labels in (
        ("GpuQueueStalled", "info", 15, pending("science"), during("2"), {"cluster_queue": "science"}),
        ("GpuScaledToMost", "warning", 15, WANTS, during("4", "2"), HPA),
        ("GpuScalingFailed", "warning", 10, INACTIVE, during("1"), HPA),
        (
            "GpuColdStartSlow",
            "warning",
            12,
            ready(LATE),
            only_during("0"),
            {"namespace": "team", "pod": LATE},
        ),
    )
)


def test_each_fires_alone_and_ends(promtool: Promtool) -> None:
    promtool.test(environment(), together(world.healthy() | HEALTHY, ROWS, (15, 24, 29, 43), ended=75))


def test_what_is_admitted_or_scaled_to_zero_is_no_fault(promtool: Promtool) -> None:
    """Without pods, the autoscaler is inactive on purpose."""
    fine = {pending("science"): always("2"), ADMITTED: "5+1x300", INACTIVE: always("1"), HAS: always("0")}
    promtool.test(environment(), together(world.healthy() | HEALTHY | fine, (), (43,), ended=130))
    # The same on a cluster of which the stack declares neither.
    elsewhere = {name: value for row in ROWS for name, value in row.series.items() if value}
    promtool.test(world.environment(), together(world.healthy() | HEALTHY | elsewhere, (), (43,), ended=75))
