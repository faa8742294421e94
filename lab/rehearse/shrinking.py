"""Removes half of the pods: which nodes are then removed, and why the others stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from gpuform.usage.node_prices import total
from gpuform.usage.nodes import Event
from gpuform.usage.rehearsal import Gone, Shrink, Side
from infra.model.environment import Environment
from lab.rehearse import pods
from lab.rehearse.cluster import Cluster
from lab.rehearse.cost_report import CostReport
from lab.rehearse.node_source import NodeSource
from lab.rehearse.watch import Snapshot, Watch

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
