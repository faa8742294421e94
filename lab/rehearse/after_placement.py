"""What follows once all pods are placed: jobs run to their end, and half of the pods are removed.

The run time of the jobs' pods is cut short. The result says which nodes are removed, and why others stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from gpuform.usage import queues
from gpuform.usage.node_prices import total
from gpuform.usage.rehearsal import Ended, Gone, Shrink, Side
from infra.model.environment import Environment
from infra.model.workload import JobWorkload
from lab.rehearse import pods
from lab.rehearse.cluster import Cluster
from lab.rehearse.cost_report import CostReport
from lab.rehearse.node_source import NodeSource
from lab.rehearse.reasons import Event
from lab.rehearse.watch import Snapshot, Watch, held

JOBS = "/apis/batch/v1/jobs"
_TIME = re.compile(r"[0-9.]+[smh]?")
_PASSING = re.compile(r"nominated|isn't initialized|is being|already|marked for")
"""Messages about a node that hold only for a moment."""
_TAKEN = "DisruptionTerminating"
"""Karpenter's event reason for a node that it removes."""
_WORDS = {
    "Empty": "no pod was left on it",
    "Underutilized": "its pods fit on other nodes, or on a cheaper one",
    "Drifted": "it has drifted from its NodePool",
    "Expired": "it has expired (expireAfter)",
}


def ending(env: Environment) -> dict[tuple[str, str], JobWorkload]:
    """The jobs that end, by namespace and name: all but those with a command such as ``sleep inf``."""
    jobs = [one for one in env.workloads if isinstance(one, JobWorkload)]
    return {
        (one.namespace, one.name): one
        for one in jobs
        if len(one.command) < 2 or one.command[0] != "sleep" or _TIME.fullmatch(one.command[1])
    }


def end(
    env: Environment, cluster: Cluster, watch: Watch, quiet_s: float, timeout_s: float
) -> tuple[Ended, ...]:
    """End the pods of these jobs, and those that follow them, until the jobs are complete.

    What waits in a queue may be admitted then. A job that still waits in the end is left out.
    """
    jobs = ending(env)
    told: set[str] = set()

    def seen() -> tuple[Ended, ...]:
        there = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in cluster.items(JOBS)}
        status = {key: there.get(key, {}).get("status", {}) for key in jobs}
        return tuple(Ended(*key, status[key].get("succeeded", 0), one.total) for key, one in jobs.items())

    def done(now: Snapshot) -> bool:
        for pod in now.workloads:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            if (pod.namespace, pod.workload) in jobs and pod.phase == "Running" and path not in told:
                told.add(path)
                cluster.patch(path, {"metadata": {"annotations": {pods.DURATION: "1s"}}})
        waits = any(queues.state(one) == "waits" for one in now.works)
        return (
            not waits and all(one.placed or one.over for one in now.workloads) and not any(troubles(seen()))
        )

    watch.until(done, quiet_s, timeout_s)
    waiting = held(watch.queued.values())
    return tuple(one for one in seen() if (one.namespace, one.name) not in waiting)


def without(env: Environment, ended: tuple[Ended, ...]) -> Environment:
    """The environment without these jobs."""
    over = {(one.namespace, one.name) for one in ended}
    left = tuple(one for one in env.workloads if (one.namespace, one.name) not in over)
    return env.model_copy(update={"workloads": left})


def troubles(ended: tuple[Ended, ...]) -> Iterator[str]:
    for one in ended:
        if one.succeeded < one.completions:
            yield f"job {one.namespace}/{one.name}: {one.succeeded} of {one.completions} pods succeeded"


def shrink(
    env: Environment,
    cluster: Cluster,
    watch: Watch,
    source: NodeSource,
    costs: CostReport,
    quiet_s: float,
    timeout_s: float,
) -> Shrink:
    """Remove half of each workload's pods, and wait until no further change follows."""
    before = watch.look()
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    elastic = source.way != "none"
    note = source.hurry(cluster)
    pods.halve(cluster, env, before.workloads)
    least = pods.wanted(pods.halved(env))

    def done(now: Snapshot) -> bool:
        return not elastic and sum(not pod.over for pod in now.workloads) == least

    watch.until(done, quiet_s, timeout_s)
    after = watch.look()
    said = pods.events(cluster)
    now_paid = CostReport(env, costs.prices, source.paid())
    left = {node.name for node in after.nodes}
    gone = tuple(
        Gone(node.name, node.pool, node.machine, now_paid.usd(node), *_why(node.name, said, source.gone))
        for node in before.nodes
        if node.name not in left
    )
    stays = dict.fromkeys(_stays([one for one in said if one.when >= began], left))
    return Shrink(_side(before, now_paid), _side(after, now_paid), gone, tuple(stays), note)


def _side(now: Snapshot, costs: CostReport) -> Side:
    placed = sum(pod.placed and not pod.over for pod in now.workloads)
    return Side(len(now.nodes), placed, total(costs.usd(node) for node in now.nodes))


def _why(node: str, said: list[Event], unsaid: str) -> tuple[str, tuple[str, ...]]:
    told = [one for one in said if one.kind == "Node" and one.name == node and one.reason == _TAKEN]
    ended = [one.message for one in told]
    text = ended[-1] if ended else ""
    words = next((words for key, words in _WORDS.items() if f": {key}" in text), unsaid)
    return words, tuple(ended)


def _stays(said: list[Event], nodes: set[str]) -> Iterator[str]:
    """Karpenter's messages about remaining nodes, and about budgets that block it."""
    for one in said:
        if one.reason not in ("Unconsolidatable", "DisruptionBlocked") or _PASSING.search(one.message):
            continue
        if one.kind == "Node" and one.name in nodes:
            yield f"{one.name}: {one.message}"
        if one.kind == "NodePool":
            yield f"NodePool {one.name}: {one.message}"
