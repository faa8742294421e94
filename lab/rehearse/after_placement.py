"""What follows once all pods are placed: jobs run to their end, and half of the pods are removed.

The run time of the jobs' pods is cut short. The result says which nodes are removed, and why others stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from gpuform.usage import queues
from gpuform.usage.node_prices import total
from gpuform.usage.rehearsal import JobResult, RemovedNode, Shrink, Totals
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.workload.workload import JobWorkload
from lab.rehearse import pods
from lab.rehearse.cluster import Cluster
from lab.rehearse.cost_report import CostReport
from lab.rehearse.node_source import NodeSource
from lab.rehearse.reasons import Event
from lab.rehearse.watch import Snapshot, Watch, held_back

JOBS = "/apis/batch/v1/jobs"
_TIME = re.compile(r"[0-9.]+[smh]?")
_TRANSIENT = re.compile(r"nominated|isn't initialized|is being|already|marked for")
"""Messages about a node that hold only for a moment."""
_TERMINATING = "DisruptionTerminating"
"""Karpenter's event reason for a node that it removes."""
_REASONS = {
    "Empty": "no pod was left on it",
    "Underutilized": "its pods fit on other nodes, or on a cheaper one",
    "Drifted": "it has drifted from its NodePool",
    "Expired": "it has expired (expireAfter)",
}


def finite_jobs(env: Environment) -> dict[tuple[str, str], JobWorkload]:
    """The jobs that end, by namespace and name: all but those with a command such as ``sleep inf``."""
    jobs = [work for work in env.workloads if isinstance(work, JobWorkload) and work.parallelism]
    return {
        (job.namespace, job.name): job
        for job in jobs
        if len(job.command) < 2 or job.command[0] != "sleep" or _TIME.fullmatch(job.command[1])
    }


def complete_jobs(
    env: Environment, cluster: Cluster, watch: Watch, quiet_s: float, timeout_s: float
) -> tuple[JobResult, ...]:
    """End the pods of these jobs, and those that follow them, until the jobs are complete.

    What waits in a queue may be admitted then. A job that still waits in the end is left out.
    """
    jobs = finite_jobs(env)
    shortened: set[str] = set()

    def job_counts() -> tuple[JobResult, ...]:
        succeeded = {
            (item["metadata"]["namespace"], item["metadata"]["name"]): item.get("status", {}).get(
                "succeeded", 0
            )
            for item in cluster.items(JOBS)
        }
        return tuple(JobResult(*key, succeeded.get(key, 0), job.total) for key, job in jobs.items())

    def done(now: Snapshot) -> bool:
        for pod in now.workloads:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            if (pod.namespace, pod.workload) in jobs and pod.phase == "Running" and path not in shortened:
                shortened.add(path)
                cluster.patch(path, {"metadata": {"annotations": {pods.DURATION: "1s"}}})
        waits = any(queues.workload_state(work) == "waits" for work in now.works)
        return (
            not waits
            and all(pod.is_placed or pod.has_ended for pod in now.workloads)
            and not any(incomplete_jobs(job_counts()))
        )

    watch.wait_until(done, quiet_s, timeout_s)
    waiting = held_back(watch.queued.values())
    return tuple(job for job in job_counts() if (job.namespace, job.name) not in waiting)


def without_jobs(env: Environment, ended: tuple[JobResult, ...]) -> Environment:
    finished = {(job.namespace, job.name) for job in ended}
    remaining = tuple(work for work in env.workloads if (work.namespace, work.name) not in finished)
    return env.model_copy(update={"workloads": remaining})


def incomplete_jobs(ended: tuple[JobResult, ...]) -> Iterator[str]:
    for job in ended:
        if job.succeeded < job.completions:
            yield f"job {job.namespace}/{job.name}: {job.succeeded} of {job.completions} pods succeeded"


def shrink(
    env: Environment,
    cluster: Cluster,
    watch: Watch,
    source: NodeSource,
    prices: PriceList,
    timeout_s: float,
) -> Shrink:
    """Remove half of each workload's pods, and wait until no further change follows."""
    before = watch.observe()
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    elastic = source.way != "none"
    note = source.hasten_removal(cluster)
    pods.halve(cluster, env, before.workloads)
    least = pods.count_pods(pods.halved(env))

    def done(now: Snapshot) -> bool:
        return not elastic and sum(not pod.has_ended for pod in now.workloads) == least

    watch.wait_until(done, source.quiet_s, timeout_s)
    after = watch.observe()
    events = pods.read_events(cluster)
    costs = CostReport(env, prices, source.paid())
    left = {node.name for node in after.nodes}
    removed = tuple(
        RemovedNode(
            node.name,
            node.pool,
            node.machine,
            costs.usd_per_hour(node),
            *_removal_reason(node.name, events, source.removal_reason),
        )
        for node in before.nodes
        if node.name not in left
    )
    reasons = dict.fromkeys(_retention_reasons([event for event in events if event.when >= began], left))
    return Shrink(_side(before, costs), _side(after, costs), removed, tuple(reasons), note)


def _side(now: Snapshot, costs: CostReport) -> Totals:
    placed = sum(pod.is_placed and not pod.has_ended for pod in now.workloads)
    return Totals(len(now.nodes), placed, total(costs.usd_per_hour(node) for node in now.nodes))


def _removal_reason(node: str, events: list[Event], default: str) -> tuple[str, tuple[str, ...]]:
    removal = "Node", node, _TERMINATING
    messages = [event.message for event in events if (event.kind, event.name, event.reason) == removal]
    text = messages[-1] if messages else ""
    words = next((words for key, words in _REASONS.items() if f": {key}" in text), default)
    return words, tuple(messages)


def _retention_reasons(events: list[Event], nodes: set[str]) -> Iterator[str]:
    """Karpenter's messages about remaining nodes, and about budgets that block it."""
    for event in events:
        if event.reason not in ("Unconsolidatable", "DisruptionBlocked") or _TRANSIENT.search(event.message):
            continue
        if event.kind == "Node" and event.name in nodes:
            yield f"{event.name}: {event.message}"
        if event.kind == "NodePool":
            yield f"NodePool {event.name}: {event.message}"
