"""A rehearsal's outcome as JSON; the format is documented in docs/howto/rehearse.md and stable."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gpuform.usage.rehearsal import Line, Load, NodeDrawn, Outcome, Pending, PoolOutcome, QueueOutcome, Shrink


def document(outcome: Outcome) -> dict[str, Any]:
    return {
        "stack": outcome.stack,
        "kind": outcome.kind,
        "karpenter": "none" if outcome.way == "counted" else outcome.way,
        "autoscaler": "counted" if outcome.way == "counted" else "none",
        "failed": outcome.failed,
        "steps": [{"name": one.name, "seconds": round(one.seconds, 1)} for one in outcome.steps],
        "prices": outcome.prices,
        "seconds": round(outcome.seconds, 1),
        "usd_per_hour": _cents(outcome.usd_per_hour),
        "unpriced": list(outcome.unpriced),
        "pools": [_pool(one) for one in outcome.pools],
        "pods": {
            "wanted": outcome.pods,
            "placed": outcome.placed,
            "pending": [_pending(one) for one in outcome.pending],
        },
        "queues": [_queue(one) for one in outcome.queues],
        "switched_on": list(outcome.played),
        "refusals": [asdict(one) for one in outcome.refusals],
        "jobs": [asdict(one) for one in outcome.jobs],
        "shrink": _shrink(outcome.shrink) if outcome.shrink else None,
        "loads": [_load(one) for one in outcome.loads],
        "shortened": list(outcome.shortened),
        "troubles": list(outcome.troubles),
        "nodes": [_node(one) for one in outcome.nodes],
        "timeline": [_line(one) for one in outcome.timeline],
        "rss_bytes": dict(outcome.rss_bytes),
        "measured": asdict(outcome.measured) if outcome.measured else None,
        "simulated": list(outcome.simulated),
        "real": list(outcome.real),
        "cannot_show": list(outcome.blind),
    }


def _cents(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 4)


def _pool(pool: PoolOutcome) -> dict[str, Any]:
    return {
        "name": pool.name,
        "fixed": pool.fixed,
        "machines": [{**asdict(one), "usd_per_hour": _cents(one.usd_per_hour)} for one in pool.machines],
        "resources": {
            name: {"offers": round(one.offers, 3), "used": round(one.used, 3), "idle": round(one.idle, 3)}
            for name, one in pool.resources.items()
        },
        "usd_per_hour": _cents(pool.usd_per_hour),
        "idle_usd_per_hour": _cents(pool.idle_usd_per_hour),
        "launched": pool.launched,
        "in_vain": list(pool.in_vain),
    }


def _pending(pod: Pending) -> dict[str, Any]:
    return {**asdict(pod), "asks": dict(pod.asks), "said": list(pod.said)}


def _queue(queue: QueueOutcome) -> dict[str, Any]:
    works = [asdict(one) for one in queue.workloads]
    for turn in (turn for one in works for turn in one["turns"]):
        turn["at"] = round(turn["at"], 1)
    own = {key: value for key, value in asdict(queue.status).items() if key not in ("admitted", "waiting")}
    return {**own, "usd_per_hour": _cents(queue.usd_per_hour), "workloads": works}


def _shrink(shrink: Shrink) -> dict[str, Any]:
    sides = {"before": shrink.before, "after": shrink.after}
    return {
        **{name: {**asdict(side), "usd_per_hour": _cents(side.usd_per_hour)} for name, side in sides.items()},
        "gone": [
            {**asdict(one), "usd_per_hour": _cents(one.usd_per_hour), "said": list(one.said)}
            for one in shrink.gone
        ],
        "stays": list(shrink.stays),
        "note": shrink.note,
    }


def _load(load: Load) -> dict[str, Any]:
    found = [
        {
            **asdict(one),
            "cold": {step: round(at, 1) for step, at in one.cold.items()},
            "waiting": [_pending(pod) for pod in one.waiting],
        }
        for one in load.workloads
    ]
    return {
        "qps": load.qps,
        "seconds": round(load.seconds, 1),
        "workloads": found,
        "nodes": load.nodes,
        "bought": dict(load.bought),
        "removed": dict(load.removed),
        "usd_per_hour": _cents(load.usd_per_hour),
    }


def _node(node: NodeDrawn) -> dict[str, Any]:
    cells = [
        [{"resource": c.resource, "namespace": c.namespace or None, "pod": c.pod or None} for c in row]
        for row in node.gpus
    ]
    others = list(node.others)
    return {**asdict(node), "usd_per_hour": _cents(node.usd_per_hour), "gpus": cells, "others": others}


def _line(line: Line) -> dict[str, Any]:
    times = {
        key: None if (at := getattr(line, key)) is None else round(at, 1) for key in ("begin", "ready", "end")
    }
    return {**asdict(line), **times, "usd_per_hour": _cents(line.usd_per_hour)}
