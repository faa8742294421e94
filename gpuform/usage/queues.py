"""Queues of teams as Kueue reports them: what is used, what is borrowed, what waits and why.

Of a rehearsal also what has happened to each workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpuform.kubernetes.pods import condition, queued_object
from infra.model.base.quantities import whole_number
from infra.model.environment import Environment
from infra.model.workload.queues import Team
from infra.plan.queues import flavor_name, flavored_pools

WAITS_FOR_OTHERS = "others in its queue are first, or wait for the same"
"""Kueue judges the first of a queue, and of several equal ones only one."""

Json = Mapping[str, Any]
State = Literal["waits", "admitted", "finished"]
Change = Literal["created", "admitted", "evicted", "finished", "removed"]


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
class Transition:
    """A change of a workload, ``at`` seconds after the start; ``why`` it was evicted, in Kueue's words."""

    at: float
    what: Change
    why: str = ""


@dataclass(frozen=True)
class QueuedWorkload:
    """What has happened to a workload; ``waits`` is why it is not admitted, empty if it does not wait.

    ``kind`` and ``name`` are those of the queued object: a Job, a Pod of a Deployment. A pod ends with its
    eviction; a Job, or what has pods created again, then waits.
    """

    queue: str
    namespace: str
    kind: str
    name: str
    turns: tuple[Transition, ...]
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
    workloads: tuple[QueuedWorkload, ...]
    until: float


def summarise(env: Environment, queues: Iterable[Json], workloads: Iterable[Json]) -> tuple[QueueStatus, ...]:
    """One for each team, in the order of the environment file; ``queues`` are ClusterQueues."""
    live = {str(queue["metadata"]["name"]): queue for queue in queues}
    ordered = sorted(workloads, key=lambda item: (str(item["metadata"]["creationTimestamp"]), _name_of(item)))
    teams = env.queues.teams if env.queues else ()
    pools = {flavor_name(env, pool): pool.name for pool in flavored_pools(env)}
    return tuple(_queue_status(team, live.get(team.name), ordered, pools) for team in teams)


def _queue_status(
    team: Team, live: Json | None, workloads: Iterable[Json], pools: Mapping[str, str]
) -> QueueStatus:
    if live is None:
        return QueueStatus(team.name, 0, (), (), "it does not exist")
    status = live.get("status") or {}
    used = {
        (flavor["name"], resource["name"]): resource
        for flavor in status.get("flavorsUsage") or ()
        for resource in flavor["resources"]
    }
    active = condition(live, "Active")
    return QueueStatus(
        name=team.name,
        admitted=int(status.get("admittedWorkloads") or 0),
        usage=tuple(
            _parse_usage(
                pools.get(flavor["name"], flavor["name"]), item, used.get((flavor["name"], item["name"]), {})
            )
            for group in live["spec"].get("resourceGroups") or ()
            for flavor in group["flavors"]
            for item in flavor["resources"]
        ),
        waiting=tuple(parse_waiting(workload) for workload in workloads if _is_waiting(workload, team)),
        trouble="" if active.get("status", "True") == "True" else str(active.get("message", "")),
    )


def _parse_usage(pool: str, declared: Json, used: Json) -> Usage:
    total, borrowed = (whole_number(used.get(key, "0")) for key in ("total", "borrowed"))
    return Usage(pool, declared["name"], whole_number(declared["nominalQuota"]), total, borrowed)


def _name_of(workload: Json) -> str:
    return f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"


def _is_waiting(workload: Json, team: Team) -> bool:
    """Whether it is in one of the team's namespaces, and is neither admitted nor finished nor stopped.

    Kueue queues no StatefulSet of 0 replicas (pkg/workload/workload.go, IsOnHold).
    """
    if workload["metadata"]["namespace"] not in team.namespaces:
        return False
    is_stopped = condition(workload, "QuotaReserved").get("reason") == "OnHold"
    return workload_state(workload) == "waits" and not is_stopped


def workload_state(workload: Json) -> State:
    """A finished Workload stays admitted."""
    conditions: tuple[tuple[str, State], ...] = (("Finished", "finished"), ("Admitted", "admitted"))
    states = (name for kind, name in conditions if condition(workload, kind).get("status") == "True")
    return next(states, "waits")


def parse_waiting(workload: Json) -> Waiting:
    """The queued object, and why it waits if it is not admitted."""
    owner = queued_object(workload)
    return Waiting(workload["metadata"]["namespace"], owner["kind"], owner["name"], _waiting_reason(workload))


def _waiting_reason(workload: Json) -> str:
    if not workload["spec"].get("active", True):
        return "it is deactivated"
    current = condition(workload, "QuotaReserved")
    if current.get("status") == "True":  # what it still needs is said with its admission
        current = condition(workload, "Admitted")
    return " ".join(str(current.get("message") or WAITS_FOR_OTHERS).split())
