"""Queues of teams as Kueue reports them: what is used, what is borrowed, what waits and why.

Of a rehearsal also what has happened to each workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpuform.kubernetes.pods import condition, queued_object
from infra.model.amounts import whole
from infra.model.environment import Environment
from infra.model.queues import Team
from infra.plan.queues import flavor_name, flavored

KINDS = ("clusterqueues.kueue.x-k8s.io", "workloads.kueue.x-k8s.io")
BEHIND = "others in its queue are first, or wait for the same"
"""Kueue judges the first of a queue, and of several equal ones only one."""

Json = Mapping[str, Any]
State = Literal["waits", "admitted", "finished"]
What = Literal["created", "admitted", "evicted", "finished", "removed"]


@dataclass(frozen=True)
class Usage:
    """A team's GPUs of one resource of a pool; ``borrowed`` is the part of ``used`` above ``quota``."""

    pool: str
    resource: str
    quota: int
    used: int
    borrowed: int


@dataclass(frozen=True)
class Waiting:
    """A workload that is not admitted; ``kind`` and ``name`` are those of the queued object."""

    namespace: str
    kind: str
    name: str
    reason: str


@dataclass(frozen=True)
class QueueStatus:
    """A team's queue; ``admitted`` counts its workloads, ``trouble`` is why the queue admits nothing."""

    name: str
    admitted: int
    usage: tuple[Usage, ...]
    waiting: tuple[Waiting, ...]
    trouble: str = ""


@dataclass(frozen=True)
class Turn:
    """A change of a workload, ``at`` seconds after the start; ``why`` it was evicted, in Kueue's words."""

    at: float
    what: What
    why: str = ""


@dataclass(frozen=True)
class Queued:
    """What has happened to a workload; ``waits`` is why it is not admitted, empty if it does not wait.

    ``kind`` and ``name`` are those of the queued object: a Job, a Pod of a Deployment. A pod ends with its
    eviction; a Job, or what has pods created again, then waits.
    """

    queue: str
    namespace: str
    kind: str
    name: str
    turns: tuple[Turn, ...]
    waits: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def trouble(self) -> str:
        """Why it does not run because of its queue; empty for any other reason."""
        if self.waits:
            return f"waits in queue {self.queue}: {self.waits}"
        last = self.turns[-1]
        gone = f"queue {self.queue} ended it, and nothing creates it again: {last.why}"
        return gone if last.what == "evicted" else ""


@dataclass(frozen=True)
class QueueOutcome:
    """A team's queue; ``status`` and ``usd_per_hour`` are those once the pods were placed, as of pools.

    ``usd_per_hour`` is the price of nodes by the part of their GPUs that its pods hold, None if unknown.
    ``workloads`` are in the order of admission, as of ``until`` seconds after the start.
    """

    status: QueueStatus
    usd_per_hour: float | None
    workloads: tuple[Queued, ...]
    until: float


def summarise(env: Environment, queues: Iterable[Json], workloads: Iterable[Json]) -> tuple[QueueStatus, ...]:
    """One for each team, in the order of the environment file; ``queues`` are ClusterQueues."""
    live = {str(one["metadata"]["name"]): one for one in queues}
    works = sorted(workloads, key=lambda one: (str(one["metadata"]["creationTimestamp"]), _named(one)))
    teams = env.queues.teams if env.queues else ()
    pools = {flavor_name(env, pool): pool.name for pool in flavored(env)}
    return tuple(_queue(team, live.get(team.name), works, pools) for team in teams)


def _queue(team: Team, live: Json | None, works: Iterable[Json], pools: Mapping[str, str]) -> QueueStatus:
    if live is None:
        return QueueStatus(team.name, 0, (), (), "it does not exist")
    status = live.get("status") or {}
    used = {
        (flavor["name"], one["name"]): one
        for flavor in status.get("flavorsUsage") or ()
        for one in flavor["resources"]
    }
    active = condition(live, "Active")
    return QueueStatus(
        name=team.name,
        admitted=int(status.get("admittedWorkloads") or 0),
        usage=tuple(
            _usage(
                pools.get(flavor["name"], flavor["name"]), one, used.get((flavor["name"], one["name"]), {})
            )
            for group in live["spec"].get("resourceGroups") or ()
            for flavor in group["flavors"]
            for one in flavor["resources"]
        ),
        waiting=tuple(waiting(one) for one in works if _waits(one, team)),
        trouble="" if active.get("status", "True") == "True" else str(active.get("message", "")),
    )


def _usage(pool: str, declared: Json, used: Json) -> Usage:
    total, borrowed = (whole(used.get(key, "0")) for key in ("total", "borrowed"))
    return Usage(pool, declared["name"], whole(declared["nominalQuota"]), total, borrowed)


def _named(work: Json) -> str:
    return f"{work['metadata']['namespace']}/{work['metadata']['name']}"


def _waits(work: Json, team: Team) -> bool:
    """Whether it is in one of the team's namespaces, and is neither admitted nor finished."""
    return work["metadata"]["namespace"] in team.namespaces and state(work) == "waits"


def state(work: Json) -> State:
    """A finished Workload stays admitted."""
    found: tuple[tuple[str, State], ...] = (("Finished", "finished"), ("Admitted", "admitted"))
    true = (name for kind, name in found if condition(work, kind).get("status") == "True")
    return next(true, "waits")


def waiting(work: Json) -> Waiting:
    """The queued object, and why it waits if it is not admitted."""
    owner = queued_object(work)
    return Waiting(work["metadata"]["namespace"], owner["kind"], owner["name"], _reason(work))


def _reason(work: Json) -> str:
    if not work["spec"].get("active", True):
        return "it is deactivated"
    said = condition(work, "QuotaReserved")
    if said.get("status") == "True":  # what it still needs is said with its admission
        said = condition(work, "Admitted")
    return " ".join(str(said.get("message") or BEHIND).split())
