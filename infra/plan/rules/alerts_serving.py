"""Alerts about queues and about workloads that are scaled by requests.

kube-state-metrics reports what KEDA cannot do: its HorizontalPodAutoscaler is then not active. So nothing of
KEDA itself is scraped. Figures are our choice, but for the time of a start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from infra.model.environment import Environment
from infra.model.workload import InferenceWorkload
from infra.plan import serving, workloads
from infra.plan.rules.alert import NOTHING, Alert
from infra.plan.rules.promql import most, one_of

_HPA = ("namespace", "horizontalpodautoscaler")
_WHO = "{{ $labels.namespace }}/{{ $labels.horizontalpodautoscaler }}"


def alerts(env: Environment) -> Iterator[Alert]:
    """Alerts about queues, then about scaled workloads."""
    scaled = [work for work in env.workloads if isinstance(work, InferenceWorkload) and work.scale]
    yield _stalled(env)
    yield Alert(
        name="GpuScaledToMost",
        severity="warning",
        wait="15m",
        expr=_each([work for work in scaled if work.scale and work.scale.min < work.scale.max], _at_most),
        means="A scaled workload has as many pods as it may have.",
        summary=f"{_WHO} has reached the most pods that it may have",
        description="More requests make its answers slower. Raise scale.max if the pools have room for it.",
    )
    yield Alert(
        name="GpuScalingFailed",
        severity="warning",
        wait="10m",
        expr=_each(scaled, _inactive),
        means="A scaled workload keeps its number of pods: its requests are not known.",
        summary=f"{_WHO} does not scale: its requests are not known",
        description="KEDA gets no number from Prometheus, or does not run. The number of pods stays.",
    )
    minutes = [workloads.wait_minutes(env, work)[0] for work in scaled]
    yield Alert(
        name="GpuColdStartSlow",
        severity="warning",
        wait=f"{max(minutes, default=serving.IMAGE_MINUTES)}m",
        expr=_each(scaled, _unready),
        means="A pod of a scaled workload is not ready after the time that a start may take.",
        summary="pod {{ $labels.namespace }}/{{ $labels.pod }} has not become ready in time",
        description="Requests wait for it, or the other pods have to answer them. It waits for a node or its "
        "image, loads its model, or fails.",
    )


def _stalled(env: Environment) -> Alert:
    queues = one_of(team.name for team in env.queues.teams) if env.queues else ""
    matcher = f'{{cluster_queue=~"{queues}"}}'
    # The replicas of Kueue that do not lead report what they know as well.
    waits = most(["cluster_queue"], f"sum without (status) (kueue_pending_workloads{matcher})")
    came = f"sum by (cluster_queue) (increase(kueue_admitted_workloads_total{matcher}[1h]))"
    return Alert(
        name="GpuQueueStalled",
        severity="info",
        wait="15m",
        expr=f"{waits} > 0 unless {came} > 0" if queues else NOTHING,
        means="Workloads wait in a team's queue, and none was admitted for an hour.",
        summary="queue {{ $labels.cluster_queue }}: {{ $value }} wait, and none was admitted for an hour",
        description="It is full for long, or can admit nothing. `gpuform status` says why each of them "
        "waits.",
    )


def _each(works: Iterable[InferenceWorkload], expression: Callable[[InferenceWorkload], str]) -> str:
    return " or ".join(f"({expression(work)})" for work in works) or NOTHING


def _autoscaler(work: InferenceWorkload) -> str:
    """Matchers of the autoscaler that KEDA makes [KEDA, controllers/keda/hpa.go, getHPAName]."""
    return f'namespace="{work.namespace}",horizontalpodautoscaler="keda-hpa-{work.name}"'


def _at_most(work: InferenceWorkload) -> str:
    name = "kube_horizontalpodautoscaler_{}{{" + _autoscaler(work) + "}}"
    wants, may = (most(_HPA, name.format(one)) for one in ("status_desired_replicas", "spec_max_replicas"))
    return f"{wants} >= {may}"


def _inactive(work: InferenceWorkload) -> str:
    """Not active while it has pods: without any, it is inactive on purpose."""
    state = f'{_autoscaler(work)},condition="ScalingActive",status="false"'
    has = f"kube_horizontalpodautoscaler_status_current_replicas{{{_autoscaler(work)}}}"
    return (
        f"{most(_HPA, f'kube_horizontalpodautoscaler_status_condition{{{state}}}')} == 1"
        f" and {most(_HPA, has)} > 0"
    )


def pods(work: InferenceWorkload) -> str:
    """Matchers of the pods of the workload's Deployment."""
    return f'namespace="{work.namespace}",pod=~"{work.deployment}-[a-z0-9]+-[a-z0-9]{{5}}"'


def _unready(work: InferenceWorkload) -> str:
    ready = most(("namespace", "pod"), f'kube_pod_status_ready{{{pods(work)},condition="true"}}')
    over = most(("namespace", "pod"), f'kube_pod_status_phase{{{pods(work)},phase=~"Failed|Succeeded"}}')
    return f"{ready} == 0 unless {over} == 1"
