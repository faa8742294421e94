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
from gpuform.kubernetes.kinds import RESOURCE_CLAIM, RESOURCE_SLICE
from gpuform.kubernetes.pods import condition
from gpuform.usage import queues
from gpuform.usage.cluster_objects import Claims, parse_claims
from gpuform.usage.nodes import Node, Pod, parse_node, parse_pod
from gpuform.usage.queues import Change, QueuedWorkload, Transition
from infra.model.base import labels
from infra.model.base.guard_names import KUEUE_API
from infra.model.base.namespaces import PLACEHOLDER
from infra.model.environment import Environment
from infra.model.pool.allocatable import claimable, resources
from lab.rehearse.cluster import NODE_CLAIMS, NODES, PODS, Cluster, Json

INTERVAL_S = 0.5
QUEUES = f"/apis/{KUEUE_API}/clusterqueues"
WORKLOADS = f"/apis/{KUEUE_API}/workloads"
FOREIGN = "rehearsal.gpuform.io/workload"
"""Annotation of pods that gpuform does not declare: the name of their workload."""
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
        return tuple(pod for pod in self.pods if pod.workload)

    @property
    def state(self) -> object:
        """Differs from the previous state if something has changed; why a workload waits is reworded.

        The collection of a removed node's pods, up to a minute later, is no change.
        """
        names = {"", *(node.name for node in self.nodes)}
        pods = tuple((pod.namespace, pod.name, pod.node, pod.phase) for pod in self.pods if pod.node in names)
        nodes = tuple(
            (node.name, node.ready, bool(node.waits_for), tuple(node.offers.items())) for node in self.nodes
        )
        works = tuple((work["metadata"]["uid"], queues.workload_state(work)) for work in self.works)
        return pods, nodes, self.claims, works

    def pods_on(self, name: str) -> tuple[Pod, ...]:
        """The pods that use the node's resources; placeholders, which only reserve room, are left out."""
        own_pods = [pod for pod in self.pods if pod.node == name and not pod.has_ended]
        return tuple(pod for pod in own_pods if pod.namespace != PLACEHOLDER)

    def troubles(self, env: Environment) -> Iterator[str]:
        """Nodes that are not ready, or do not offer what was planned."""
        pairs = ((pool, node) for pool in env.pools for node in self.nodes if node.pool == pool.name)
        for pool, node in pairs:
            gpus = {key: count for key, count in node.offers.items() if key.startswith(labels.NVIDIA_PREFIX)}
            published = {name: node.offers[name] for name in _CLASSES if name in node.offers}
            subject = f"node {node.name} of pool {pool.name}"
            if not pool.by_karpenter and gpus != resources(pool):
                yield f"{subject} offers {_format_amounts(gpus) or 'no GPU'}, not what was planned"
            elif published != claimable(pool):
                yield f"{subject} publishes {_format_amounts(published) or 'nothing'}, not what was planned"
            elif not node.ready or node.waits_for:
                yield f"{subject} is not ready, or still has its startup taint"


@dataclass
class NodeLifetime:
    """A node's lifetime in seconds after the start; ``used`` by a workload's pod, or kept free on purpose."""

    node: Node
    joined: float
    ready: float | None = None
    removed: float | None = None
    used: bool = False


@dataclass
class Watch:
    """What was observed so far; any thread may call ``observe``, and one does so continuously."""

    cluster: Cluster
    environment: str
    began: float = field(default_factory=time.monotonic)
    lives: dict[str, NodeLifetime] = field(default_factory=dict)
    now: Snapshot = field(default_factory=lambda: Snapshot(0.0))
    changed: float = field(default_factory=time.monotonic)
    """Time (monotonic) of the last change of state."""
    by_claim: bool = False
    """Whether DRA devices and claims are read too."""
    queued: dict[str, QueuedWorkload] = field(default_factory=dict)
    error: Exception | None = None
    """The error that ended the watching thread, if any."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self) -> Snapshot:
        """Read the cluster once. Raises Failure if the control plane does not answer."""
        with self.lock:
            now = self._read()
            if now.state != self.now.state:
                self.changed = time.monotonic()
            self._note(now)
            self.now = now
            return now

    def _read(self) -> Snapshot:
        claimed = Claims()
        if self.by_claim:
            claimed = parse_claims(
                *(self.cluster.items(kind.path()) for kind in (RESOURCE_SLICE, RESOURCE_CLAIM))
            )
        parsed = (parse_node(item, claimed) for item in self.cluster.items(NODES))
        nodes = tuple(sorted(parsed, key=lambda node: node.name))
        placed = (_parse_pod(item, self.environment, claimed) for item in self.cluster.items(PODS))
        pods = tuple(sorted(placed, key=lambda pod: (pod.namespace, pod.name)))
        claims = tuple(sorted(_claim_conditions(claim) for claim in self.cluster.items(NODE_CLAIMS)))
        works = tuple(self.cluster.items(WORKLOADS))
        return Snapshot(time.monotonic() - self.began, nodes, pods, claims, works)

    def _note(self, now: Snapshot) -> None:
        names = {node.name for node in now.nodes}
        placeholders = [pod for pod in now.pods if pod.namespace == PLACEHOLDER]
        users = {pod.node for pod in (*now.workloads, *placeholders) if pod.node}
        for node in now.nodes:
            life = self.lives.setdefault(node.name, NodeLifetime(node, now.at))
            life.node = node
            life.used = life.used or node.name in users
            if node.ready and not node.waits_for and life.ready is None:
                life.ready = now.at
        for name, life in self.lives.items():
            if name not in names and life.removed is None:
                life.removed = now.at
        self.queued = update_queued(self.queued, now.works, now.at)

    @property
    def quiet_s(self) -> float:
        return time.monotonic() - self.changed

    @contextmanager
    def running(self) -> Iterator[None]:
        """Call ``observe`` every ``INTERVAL_S`` while the context lasts."""
        stop = threading.Event()

        def follow() -> None:
            while not stop.wait(INTERVAL_S):
                try:
                    self.observe()
                except Failure:
                    continue  # the control plane is ending or busy; ``wait_until`` has a timeout
                except Exception as error:  # an object that cannot be read; ``wait_until`` reports it
                    self.error = error
                    return

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(timeout=30)

    def wait_until(self, done: Callable[[Snapshot], bool], quiet_s: float, timeout_s: float) -> bool:
        """Wait until ``done``, ``quiet_s`` without a change, or ``timeout_s``; returns whether ``done``."""
        began = time.monotonic()
        self.changed = began
        while True:
            if self.error:
                fact = f"cannot be read ({type(self.error).__name__}: {self.error})"
                raise Failure("the rehearsal's cluster", fact, "run the rehearsal again")
            if self.now.at > began - self.began and done(self.now):
                return True
            if self.quiet_s > quiet_s or time.monotonic() - began > timeout_s:
                return False
            time.sleep(INTERVAL_S / 2)


def _parse_pod(raw: Json, environment: str, claimed: Claims) -> Pod:
    pod = parse_pod(raw, environment, claimed)
    name = (raw["metadata"].get("annotations") or {}).get(FOREIGN)
    return replace(pod, workload=name) if name else pod


def _claim_conditions(raw: Json) -> tuple[str, str]:
    meta, status = raw["metadata"], raw.get("status") or {}
    true = sorted(item["type"] for item in status.get("conditions", []) if item["status"] == "True")
    return meta["name"], " ".join(["ending", *true] if "deletionTimestamp" in meta else true)


def _format_amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{key} {count:g}" for key, count in amounts.items())


def update_queued(
    before: Mapping[str, QueuedWorkload], works: Iterable[queues.Json], at: float
) -> dict[str, QueuedWorkload]:
    """What has happened until now, by the uid of Kueue's Workloads."""
    queued, by_uid = dict(before), {str(work["metadata"]["uid"]): work for work in works}
    for uid, work in by_uid.items():
        item = queues.parse_waiting(work)
        created = (Transition(at, "created"),)
        new = QueuedWorkload(work["spec"].get("queueName", ""), item.namespace, item.kind, item.name, created)
        queued.setdefault(uid, new)
    for uid, work in by_uid.items():
        state, eviction, turns = queues.workload_state(work), condition(work, "Evicted"), queued[uid].turns
        evicted = state == "waits" or (state == "finished" and eviction.get("status") == "True")
        change: Change = "evicted" if evicted else "admitted" if state == "admitted" else "finished"
        if change != turns[-1].what and (not evicted or turns[-1].what == "admitted"):
            reason = _with_names(str(eviction.get("message", "")), queued) if evicted else ""
            turns += (Transition(at, change, reason),)
        waits = _with_names(queues.parse_waiting(work).reason, queued) if state == "waits" else ""
        queued[uid] = replace(queued[uid], turns=turns, waits=waits)
    for uid in queued.keys() - by_uid.keys():
        is_over = queued[uid].turns[-1].what in ("evicted", "finished", "removed")
        turns = queued[uid].turns + (() if is_over else (Transition(at, "removed"),))
        queued[uid] = replace(queued[uid], turns=turns, waits="")
    return queued


def _with_names(message: str, lives: Mapping[str, QueuedWorkload]) -> str:
    """Kueue's message with the workload's name instead of its uid."""
    return _PREEMPTOR.sub(lambda match: str(lives.get(match[1], match[0])), message)


def held_back(lives: Iterable[QueuedWorkload]) -> dict[tuple[str, str], QueuedWorkload]:
    """Those that do not run because of their queue, by namespace and name of the queued object."""
    newest = {(work.namespace, work.name): work for work in lives}
    return {key: work for key, work in newest.items() if work.trouble}


def in_queue(queue: str, lives: Iterable[QueuedWorkload]) -> tuple[QueuedWorkload, ...]:
    """A queue's own, in the order of admission."""
    return tuple(sorted((work for work in lives if work.queue == queue), key=_admitted))


def _admitted(work: QueuedWorkload) -> float:
    return next((turn.at for turn in work.turns if turn.what == "admitted"), math.inf)
