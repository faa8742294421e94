"""Watches a rehearsal: when a node joins, leaves, and whether it is used; when Kueue admits and evicts."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.pods import condition
from gpuform.usage import queues
from gpuform.usage.cluster_objects import CLAIMS_PATH, SLICES_PATH, Claims, gather
from gpuform.usage.nodes import Node, Pod, node, pod
from gpuform.usage.queues import Queued, Turn, What
from infra.model import labels
from infra.model.environment import Environment
from infra.model.offer import claimable
from infra.model.scheduling import PLACEHOLDER
from infra.plan.queues import QUEUES_API
from infra.plan.sharing import offered
from lab.rehearse.cluster import NODE_CLAIMS, NODES, PODS, Cluster

EVERY_S = 0.5
QUEUES = f"{QUEUES_API}/clusterqueues"
WORKLOADS = f"{QUEUES_API}/workloads"
_PREEMPTOR = re.compile(r"a workload \(UID: (\S+), JobUID: \S+\)")
"""pkg/scheduler/preemption/preemption.go of Kueue 0.19.2."""
_CLASSES = (labels.GPU_DEVICE_CLASS, labels.MIG_DEVICE_CLASS)


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment, ``at`` seconds after the rehearsal's start."""

    at: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    """Karpenter's NodeClaims, each with the conditions that are true."""
    works: tuple[queues.Json, ...] = ()
    """Kueue's Workloads."""

    @property
    def workloads(self) -> tuple[Pod, ...]:
        return tuple(one for one in self.pods if one.workload)

    @property
    def state(self) -> object:
        """Differs from the previous state if something has changed; why a workload waits is reworded."""
        pods = tuple((one.namespace, one.name, one.node, one.phase) for one in self.pods)
        nodes = tuple((n.name, n.ready, bool(n.waits_for), tuple(n.offers.items())) for n in self.nodes)
        works = tuple((one["metadata"]["uid"], queues.state(one)) for one in self.works)
        return pods, nodes, self.claims, works

    def on(self, name: str) -> tuple[Pod, ...]:
        """The pods that use the node's resources; placeholders, which only reserve room, are left out."""
        mine = [one for one in self.pods if one.node == name and not one.over]
        return tuple(one for one in mine if one.namespace != PLACEHOLDER)

    def troubles(self, env: Environment) -> Iterator[str]:
        """Nodes that are not ready, or do not offer what was planned."""
        for pool, one in ((pool, one) for pool in env.pools for one in self.nodes if one.pool == pool.name):
            gpus = {key: count for key, count in one.offers.items() if key.startswith(labels.NVIDIA_PREFIX)}
            there = {name: one.offers[name] for name in _CLASSES if name in one.offers}
            what = f"node {one.name} of pool {pool.name}"
            if not env.by_karpenter(pool) and gpus != offered(env, pool):
                yield f"{what} offers {_listed(gpus) or 'no GPU'}, not what was planned"
            elif there != claimable(pool):
                yield f"{what} publishes {_listed(there) or 'nothing'}, not what was planned"
            elif not one.ready or one.waits_for:
                yield f"{what} is not ready, or still has its startup taint"


@dataclass
class NodeLifetime:
    """A node's lifetime in seconds after the start; ``used`` by a workload's pod, or kept free on purpose."""

    node: Node
    born: float
    ready: float | None = None
    gone: float | None = None
    used: bool = False


@dataclass
class Watch:
    """What was observed so far; any thread may call ``look``, and one does so continuously."""

    cluster: Cluster
    environment: str
    began: float = field(default_factory=time.monotonic)
    lives: dict[str, NodeLifetime] = field(default_factory=dict)
    now: Snapshot = field(default_factory=lambda: Snapshot(0.0))
    changed: float = field(default_factory=time.monotonic)
    """Time (monotonic) of the last change of state."""
    by_claim: bool = False
    """Whether DRA devices and claims are read too."""
    queued: dict[str, Queued] = field(default_factory=dict)
    broken: Exception | None = None
    """The error that ended the watching thread, if any."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> Snapshot:
        """Read the cluster once. Raises Failure if the control plane does not answer."""
        with self.lock:
            return self._look()

    def _look(self) -> Snapshot:
        has = Claims()
        if self.by_claim:
            has = gather(*(self.cluster.items(path) for path in (SLICES_PATH, CLAIMS_PATH)))
        found = [node(one, has) for one in self.cluster.items(NODES)]
        nodes = tuple(sorted(found, key=lambda one: one.name))
        pods = tuple(
            sorted(
                (pod(one, self.environment, has) for one in self.cluster.items(PODS)),
                key=lambda one: (one.namespace, one.name),
            )
        )
        claims = tuple(sorted(_claim(one) for one in self.cluster.items(NODE_CLAIMS)))
        works = tuple(self.cluster.items(WORKLOADS))
        now = Snapshot(time.monotonic() - self.began, nodes, pods, claims, works)
        if now.state != self.now.state:
            self.changed = time.monotonic()
        self._note(now)
        self.now = now
        return now

    def _note(self, now: Snapshot) -> None:
        there = {one.name for one in now.nodes}
        held = [one for one in now.pods if one.namespace == PLACEHOLDER]
        users = {one.node for one in (*now.workloads, *held) if one.node}
        for one in now.nodes:
            life = self.lives.setdefault(one.name, NodeLifetime(one, now.at))
            life.node = one
            life.used = life.used or one.name in users
            if one.ready and not one.waits_for and life.ready is None:
                life.ready = now.at
        for name, life in self.lives.items():
            if name not in there and life.gone is None:
                life.gone = now.at
        self.queued = noted(self.queued, now.works, now.at)

    @property
    def quiet_s(self) -> float:
        return time.monotonic() - self.changed

    @contextmanager
    def running(self) -> Iterator[None]:
        """Call ``look`` every ``EVERY_S`` while the context lasts."""
        over = threading.Event()

        def follow() -> None:
            while not over.wait(EVERY_S):
                try:
                    self.look()
                except Failure:
                    continue  # the control plane is ending or busy; ``until`` has a timeout
                except Exception as error:  # an object that cannot be read; ``until`` reports it
                    self.broken = error
                    return

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=30)

    def until(self, done: Callable[[Snapshot], bool], quiet_s: float, timeout_s: float) -> bool:
        """Wait until ``done``, ``quiet_s`` without a change, or ``timeout_s``; returns whether ``done``."""
        began = time.monotonic()
        self.changed = began
        while True:
            if self.broken:
                fact = f"{type(self.broken).__name__}: {self.broken}"
                raise Failure(
                    "the rehearsal's cluster", f"cannot be read ({fact})", "run the rehearsal again"
                )
            if self.now.at > began - self.began and done(self.now):
                return True
            if self.quiet_s > quiet_s or time.monotonic() - began > timeout_s:
                return False
            time.sleep(EVERY_S / 2)


def _claim(raw: dict[str, object]) -> tuple[str, str]:
    meta, status = raw["metadata"], raw.get("status") or {}
    assert isinstance(meta, dict)
    assert isinstance(status, dict)
    true = sorted(one["type"] for one in status.get("conditions", []) if one["status"] == "True")
    return meta["name"], " ".join(["ending", *true] if "deletionTimestamp" in meta else true)


def _listed(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{key} {count:g}" for key, count in amounts.items())


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


def in_queue(queue: str, lives: Iterable[Queued]) -> tuple[Queued, ...]:
    """A queue's own, in the order of admission."""
    return tuple(sorted((one for one in lives if one.queue == queue), key=_admitted))


def _admitted(work: Queued) -> float:
    return next((one.at for one in work.turns if one.what == "admitted"), math.inf)
