"""Workloads in queues during a rehearsal: when Kueue admits and evicts each, and why one waits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuform.kubernetes.pods import condition
from gpuform.usage import queues
from gpuform.usage.rehearsal import Queued, Turn, What
from infra.plan.queues import QUEUES_API

QUEUES = f"{QUEUES_API}/clusterqueues"
WORKLOADS = f"{QUEUES_API}/workloads"
_PREEMPTOR = re.compile(r"a workload \(UID: (\S+), JobUID: \S+\)")
"""pkg/scheduler/preemption/preemption.go of Kueue 0.19.2."""


def noted(before: Mapping[str, Queued], works: Iterable[queues.Json], at: float) -> dict[str, Queued]:
    """What has happened until now, by the uid of Kueue's Workloads."""
    found, there = dict(before), {str(one["metadata"]["uid"]): one for one in works}
    for uid, one in there.items():
        own = queues.waiting(one)
        created = (Turn(at, "created"),)
        new = Queued(one["spec"].get("queueName", ""), own.namespace, own.kind, own.name, created)
        found.setdefault(uid, new)
    for uid, one in there.items():
        state, said, turns = queues.state(one), condition(one, "Evicted"), found[uid].turns
        evicted = state == "waits" or (state == "finished" and said.get("status") == "True")
        what: What = "evicted" if evicted else "admitted" if state == "admitted" else "finished"
        if what != turns[-1].what and (not evicted or turns[-1].what == "admitted"):
            turns += (Turn(at, what, _named(str(said.get("message", "")), found) if evicted else ""),)
        waits = _named(queues.waiting(one).reason, found) if state == "waits" else ""
        found[uid] = replace(found[uid], turns=turns, waits=waits)
    for uid in found.keys() - there.keys():
        over = found[uid].turns[-1].what in ("evicted", "finished", "removed")
        turns = found[uid].turns + (() if over else (Turn(at, "removed"),))
        found[uid] = replace(found[uid], turns=turns, waits="")
    return found


def _named(message: str, lives: Mapping[str, Queued]) -> str:
    """Kueue's message with the workload's name instead of its uid."""
    return _PREEMPTOR.sub(lambda found: str(lives.get(found[1], found[0])), message)


def held(lives: Iterable[Queued]) -> dict[tuple[str, str], Queued]:
    """Those that do not run because of their queue, by namespace and name of the queued object."""
    newest = {(one.namespace, one.name): one for one in lives}
    return {key: one for key, one in newest.items() if one.trouble}


def of(queue: str, lives: Iterable[Queued]) -> tuple[Queued, ...]:
    """A queue's own, in the order of admission."""
    return tuple(sorted((one for one in lives if one.queue == queue), key=_admitted))


def _admitted(work: Queued) -> float:
    return next((one.at for one in work.turns if one.what == "admitted"), math.inf)
