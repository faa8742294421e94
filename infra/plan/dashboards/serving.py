"""Panels of the dashboard ``capacity`` about queues and inference workloads."""

from __future__ import annotations

from infra.model.environment import Environment
from infra.model.workload import InferenceWorkload
from infra.plan import scaling
from infra.plan.dashboards.spec import Panel, Query, Series
from infra.plan.rules.alerts_serving import pods


def panels(env: Environment) -> tuple[Panel, ...]:
    """Three at most: of queues, of measured workloads, of scaled ones."""
    works = [work for work in env.workloads if isinstance(work, InferenceWorkload)]
    waited = "sum by (cluster_queue, le) (rate(kueue_admission_wait_time_seconds_bucket[1h]))"
    gpus = "sum (gpuform:pod:gpus_requested{{{}}})"
    found = [
        (
            "Time in the queue",
            "Time that 95 % of the workloads admitted in the last hour have waited, by queue.",
            "s",
            [Query(f"histogram_quantile(0.95, {waited})", "{{cluster_queue}}")] if env.queues else [],
        ),
        (
            "Requests per second per GPU",
            "Requests by which the workload is scaled, for each whole GPU that its pods request.",
            "reqps",
            [
                Query(f"({query}) / {gpus.format(pods(work))}", f"{work.namespace}/{work.name}")
                for work in works
                if (query := scaling.query(env, work))
            ],
        ),
        (
            "Cold starts",
            "Longest time from creation to readiness among the pods of a scaled workload.",
            "s",
            [Query(_start(work), f"{work.namespace}/{work.name}") for work in works if work.scale],
        ),
    ]
    return tuple(
        Series(title=title, description=text, queries=tuple(queries), unit=unit, width=8)
        for title, text, unit, queries in found
        if queries
    )


def _start(work: InferenceWorkload) -> str:
    ready, made = (f"kube_pod_{what}{{{pods(work)}}}" for what in ("status_ready_time", "created"))
    return f"max (max by (namespace, pod) ({ready}) - max by (namespace, pod) ({made}))"
