"""Watches a rehearsal's nodes and pods from its beginning to its end: who came, who went, who was used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuform.claims import CLAIMS_PATH, SLICES_PATH, Claims, gather
from gpuform.errors import Failure
from gpuform.rehearse.cluster import NODE_CLAIMS, NODES, PODS, Cluster
from gpuform.rehearse.seen import Node, Pod, node, pod
from infra.model.scheduling import PLACEHOLDER

EVERY_S = 0.5


@dataclass(frozen=True)
class Now:
    """The cluster at one moment, ``at`` seconds after the rehearsal's beginning."""

    at: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    """Karpenter's NodeClaims, each with the conditions that are true."""

    @property
    def workloads(self) -> tuple[Pod, ...]:
        """The pods of workloads."""
        return tuple(one for one in self.pods if one.workload)

    @property
    def state(self) -> object:
        """What differs when something goes on."""
        pods = tuple((one.namespace, one.name, one.node, one.phase) for one in self.pods)
        nodes = tuple((n.name, n.ready, n.held, tuple(n.offers.items())) for n in self.nodes)
        return pods, nodes, self.claims

    def on(self, name: str) -> tuple[Pod, ...]:
        """The pods that take something of a node; one that only keeps room takes nothing from anybody."""
        mine = [one for one in self.pods if one.node == name and not one.over]
        return tuple(one for one in mine if one.namespace != PLACEHOLDER)


@dataclass
class Life:
    """One node from its coming to its going, in seconds after the beginning; ``used`` by a workload's pod, or
    kept free on purpose.
    """

    node: Node
    born: float
    ready: float | None = None
    gone: float | None = None
    used: bool = False


@dataclass
class Watch:
    """What has been seen so far; anybody may look, and one thread does all the time."""

    cluster: Cluster
    environment: str
    began: float = field(default_factory=time.monotonic)
    lives: dict[str, Life] = field(default_factory=dict)
    now: Now = field(default_factory=lambda: Now(0.0))
    changed: float = field(default_factory=time.monotonic)
    """When (monotonic) the state was last another one."""
    by_claim: bool = False
    """Whether devices that are had by claim are looked at, too."""
    broken: Exception | None = None
    """What ended the looking, if anything did."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> Now:
        """Look once. Raises Failure where the control plane does not answer."""
        with self.lock:
            return self._look()

    def _look(self) -> Now:
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
        now = Now(time.monotonic() - self.began, nodes, pods, claims)
        if now.state != self.now.state:
            self.changed = time.monotonic()
        self._note(now)
        self.now = now
        return now

    def _note(self, now: Now) -> None:
        there = {one.name for one in now.nodes}
        held = [one for one in now.pods if one.namespace == PLACEHOLDER]
        users = {one.node for one in (*now.workloads, *held) if one.node}
        for one in now.nodes:
            life = self.lives.setdefault(one.name, Life(one, now.at))
            life.node = one
            life.used = life.used or one.name in users
            if one.ready and not one.held and life.ready is None:
                life.ready = now.at
        for name, life in self.lives.items():
            if name not in there and life.gone is None:
                life.gone = now.at

    @property
    def quiet_s(self) -> float:
        """Seconds since something was last seen to change."""
        return time.monotonic() - self.changed

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look again and again, for as long as this lasts."""
        over = threading.Event()

        def follow() -> None:
            while not over.wait(EVERY_S):
                try:
                    self.look()
                except Failure:
                    continue  # it is being ended, or busy; who waits for something says so in time
                except Exception as error:  # an object that is not understood; who waits has to know
                    self.broken = error
                    return

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=30)

    def until(self, done: Callable[[Now], bool], quiet_s: float, timeout_s: float) -> bool:
        """Wait until ``done``, nothing has changed for ``quiet_s``, or the time is up; whether it is done."""
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
