"""The played cluster-autoscaler at work: looks again and again, makes nodes, takes them away, says why.

What it says are events of the source ``cluster-autoscaler``, with the reasons that the real one uses
(TriggeredScaleUp, NotTriggerScaleUp, ScaleDown); their words are ours.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from gpuform.errors import Failure
from gpuform.rehearse.autoscaler.group import Group
from gpuform.rehearse.autoscaler.sizing import Site, Unneeded, daemon, growth, keeps, unneeded
from gpuform.rehearse.cluster import NODES, PODS, Cluster

SOURCE = "cluster-autoscaler"
EVERY_S = 1.0  # between two looks; ten seconds are its default
UNNEEDED_S = 600.0
"""cluster-autoscaler's default ``--scale-down-unneeded-time``."""
HURRIED_S = 5.0
"""The same in the rehearsal's last step, as nobody wants to sit through ten minutes."""


class Autoscaler:
    """Of one cluster; asked from any thread."""

    def __init__(self, cluster: Cluster, groups: Sequence[Group]) -> None:
        """Looks at nothing yet."""
        self._cluster, self._groups = cluster, tuple(groups)
        self._unneeded_s = UNNEEDED_S
        self._since: dict[str, float] = {}
        self._leaving: dict[str, Unneeded] = {}
        self._told: dict[tuple[str, str], str] = {}
        self._site = Site((), ())
        self.trouble = ""
        self.ordered: list[str] = []
        """Names of the nodes that it has made, in order."""

    def hurry(self) -> None:
        """From now on a node goes once it was not needed for a few seconds."""
        self._unneeded_s = HURRIED_S

    @property
    def stays(self) -> tuple[str, ...]:
        """Why nodes of its groups are still there."""
        return tuple(keeps(self._groups, self._site))

    def look(self) -> None:
        """Look once, and act. Raises Failure where the control plane does not answer."""
        site = self._site = Site(self._cluster.items(NODES), self._cluster.items(PODS))
        found = growth(self._groups, site)
        for pod, name in found.helped.items():
            self._say("Pod", *pod, "TriggeredScaleUp", f"group {name} grows for it")
        for pod, why in found.refused.items():
            self._say("Pod", *pod, "NotTriggerScaleUp", f"pod didn't trigger scale-up: {why}")
        for group in self._groups:
            for _ in range(found.orders.get(group.name, 0)):
                self._make(group, site)
        going = bool(self._leaving)
        self._let_go(site)
        if found.orders or going or any(pod not in found.refused for pod in site.unbound):
            self._since = {}  # somebody is on the way to a place: who is needed shows when all have theirs
        else:
            self._shrink(site)

    def _make(self, group: Group, site: Site) -> None:
        taken = {node["metadata"]["name"] for node in site.nodes} | set(self.ordered)
        name = next(one for index in range(len(taken) + 1) if (one := f"{group.name}-{index}") not in taken)
        self.ordered.append(name)
        self._cluster.create(NODES, group.node(name))

    def _shrink(self, site: Site) -> None:
        now = time.monotonic()
        found = {one.node: one for one in unneeded(self._groups, site)}
        self._since = {name: self._since.get(name, now) for name in found}
        for name, one in found.items():
            if now - self._since[name] >= self._unneeded_s:
                self._leaving[name] = one
                self._cluster.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})

    def _let_go(self, site: Site) -> None:
        """Move the pods of nodes that are to go, then let those go that have none any more.

        No pod is moved in the look in which its node was closed: the scheduler may not know of that yet. A
        disruption budget that keeps a pod keeps its node.
        """
        there = {node["metadata"]["name"]: node for node in site.nodes}
        for name, one in list(self._leaving.items()):
            node = there.get(name)
            pods = [pod["metadata"] for pod in site.on(node) if not daemon(pod)] if node else []
            if pods and all([self._cluster.evict(pod["namespace"], pod["name"]) for pod in pods]):
                continue
            del self._leaving[name]
            if pods:
                self._cluster.patch(f"{NODES}/{name}", {"spec": {"unschedulable": None}})
            elif node:
                self._say("Node", "", name, "ScaleDown", f"taken out of group {one.group}: {one.why}")
                self._cluster.delete(f"{NODES}/{name}")

    def _say(self, kind: str, namespace: str, name: str, reason: str, message: str) -> None:
        """An event, once for each text; without one the object's owner would not know."""
        if self._told.get((namespace, name)) == message:
            return
        self._told[namespace, name] = message
        self._cluster.create(
            f"/api/v1/namespaces/{namespace or 'default'}/events",
            _event(kind, namespace, name, reason, message),
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look again and again, for as long as this lasts."""
        over = threading.Event()

        def follow() -> None:
            while not over.wait(EVERY_S):
                try:
                    self.look()
                    self.trouble = ""
                except Failure as failure:  # busy, or being ended; told where it lasts
                    self.trouble = failure.fact
                except Exception as error:  # an object that is not understood: told, and no reason to stop
                    self.trouble = f"{type(error).__name__}: {error}"

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=30)


@contextmanager
def autoscaler(cluster: Cluster, groups: Sequence[Group]) -> Iterator[Autoscaler]:
    """It runs for as long as the context lasts."""
    made = Autoscaler(cluster, groups)
    with made.running():
        yield made


def _event(kind: str, namespace: str, name: str, reason: str, message: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"kind": kind, "name": name, "apiVersion": "v1"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.", "namespace": namespace or "default"},
        "involvedObject": {**about, "namespace": namespace} if namespace else about,
        "reason": reason,
        "message": message,
        "type": "Normal",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": SOURCE},
        "reportingComponent": SOURCE,
    }
