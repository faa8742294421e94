"""Plays loads: after each, KEDA and the HorizontalPodAutoscaler set the pods, and nodes follow them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuform.usage.node_prices import total
from gpuform.usage.nodes import Pod
from gpuform.usage.rehearsal import Load, Pending, Reached
from infra.config import price_list
from infra.model.environment import Environment
from lab.rehearse import pods, scaled
from lab.rehearse.cluster import NODE_CLAIMS, Cluster
from lab.rehearse.cost_report import CostReport
from lab.rehearse.exporter import Key, Requests, serving
from lab.rehearse.node_source import NodeSource
from lab.rehearse.scaled import Manifest, Scaled
from lab.rehearse.watch import Snapshot, Watch

REACTION_S = 60.0
"""Quiet seconds after a rate's window, after which no number of pods changes.

KEDA asks every 30 s (pollingInterval), and the HorizontalPodAutoscaler every 15 s
(--horizontal-pod-autoscaler-sync-period).
"""
TOLERANCE = 0.1
"""The HorizontalPodAutoscaler changes nothing for less (--horizontal-pod-autoscaler-tolerance)."""
_DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments/{}"


@dataclass
class _First:
    """A workload's first additional pod, if possible one that a node was launched for.

    ``times`` has when each step was first seen, ``created`` when each new pod was.
    """

    before: frozenset[str]
    replicas: int
    created: dict[str, float] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)

    def since(self, began: float) -> dict[str, float]:
        return {step: at - began for step, at in self.times.items()}


@dataclass
class Player:
    """Plays loads on the running cluster; ``env`` has the workloads as declared."""

    env: Environment
    scaled: tuple[Scaled, ...]
    requests: Requests
    cluster: Cluster
    watch: Watch
    source: NodeSource
    timeout_s: float
    manifests: tuple[Manifest, ...]
    """What is created before any load."""
    _claims: dict[str, dict[str, float]] = field(default_factory=dict)
    """Karpenter's NodeClaims: when each was first seen, and when it was first seen launched."""

    def begin(self) -> tuple[str, ...]:
        """Let KEDA scale the workloads; returns what is not as declared."""
        note = self.source.hurry(self.cluster)
        self.cluster.apply(scaled.scaled_objects(self.env, self.scaled))
        return (*scaled.shortened(self.env, self.scaled), note)

    def play(self, qps: float) -> Load:
        """Play one load until pods and nodes have followed it, or no further change is expected."""
        before = self.watch.look()
        firsts = {
            one.key: _First(frozenset(pod.name for pod in _mine(before, one)), self._replicas(one))
            for one in self.scaled
        }
        self.requests.play(qps)

        def followed(now: Snapshot) -> bool:
            self._note(now, firsts, before.at)
            each = ((one.wanted(qps), _mine(now, one)) for one in self.scaled)
            return all(len(mine) == wanted and all(pod.placed for pod in mine) for wanted, mine in each)

        quiet_s = REACTION_S + max(one.window_s for one in self.scaled)
        self.watch.until(followed, quiet_s, self.timeout_s)
        if self.source.way != "none":
            self.watch.until(lambda now: followed(now) and False, self.source.quiet_s, self.timeout_s)
        now, lives = self.watch.look(), list(self.watch.lives.values())
        waiting = pods.pending(
            scaled.at(self.env, qps, self.scaled), now.workloads, pods.events(self.cluster)
        )
        costs = CostReport(self.env, price_list(self.env), self.source.paid())
        return Load(
            qps=qps,
            seconds=now.at - before.at,
            workloads=tuple(
                reached(one, qps, _mine(now, one), waiting, firsts[one.key].since(before.at))
                for one in self.scaled
            ),
            nodes=len(now.nodes),
            bought=Counter(one.node.machine for one in lives if one.born > before.at),
            removed=Counter(
                one.node.machine for one in lives if one.gone is not None and one.gone > before.at
            ),
            usd_per_hour=total(costs.usd(node) for node in now.nodes),
        )

    def _note(self, now: Snapshot, firsts: Mapping[Key, _First], began: float) -> None:
        for name, conditions in now.claims:
            times = self._claims.setdefault(name, {"node requested": now.at})
            if "Launched" in conditions.split():
                times.setdefault("node launched", now.at)
        for one in self.scaled:
            first = firsts[one.key]
            if "asked" not in first.times and self._replicas(one) > first.replicas:
                first.times["asked"] = now.at
            if "asked" in first.times:
                self._start(
                    first, now, [pod for pod in _mine(now, one) if pod.name not in first.before], began
                )

    def _start(self, first: _First, now: Snapshot, new: Iterable[Pod], began: float) -> None:
        for pod in new:
            created = first.created.setdefault(pod.name, now.at)
            first.times.setdefault("created", created)
            if pod.placed and "node joined" not in first.times:
                node = self._launched(pod.node, began)
                if node or "running" not in first.times:
                    asked = first.times["asked"]
                    first.times = {"asked": asked, "created": created, **node, "running": now.at}

    def _launched(self, node: str, began: float) -> dict[str, float]:
        """The steps of a node that was launched for this load; empty for another."""
        life = self.watch.lives.get(node)
        if life is None or life.born <= began:
            return {}
        there = self.cluster.items(NODE_CLAIMS)
        claim = (one["metadata"]["name"] for one in there if one.get("status", {}).get("nodeName") == node)
        steps = {**self._claims.get(next(claim, ""), {}), "node joined": life.born}
        return steps if life.ready is None else {**steps, "node ready": life.ready}

    def _replicas(self, one: Scaled) -> int:
        return int(self.cluster.get(_DEPLOYMENTS.format(*one.key))["spec"]["replicas"])


@contextmanager
def player(
    env: Environment,
    followers: tuple[Scaled, ...],
    cluster: Cluster,
    watch: Watch,
    source: NodeSource,
    timeout_s: float,
) -> Iterator[Player]:
    """A player, and its exporter while the context lasts."""
    requests = Requests({one.key: one.series for one in followers}, lambda: ready(watch.now))
    with serving(requests) as port:
        made = scaled.manifests(env, followers, port)
        yield Player(env, followers, requests, cluster, watch, source, timeout_s, made)


def ready(now: Snapshot) -> Mapping[Key, Key]:
    """Pods that answer requests, each with its workload."""
    there = [one for one in now.workloads if one.placed and not one.over]
    return {(one.namespace, one.name): (one.namespace, one.workload) for one in there}


def reached(
    one: Scaled, qps: float, mine: list[Pod], waiting: Iterable[Pending], cold: Mapping[str, float]
) -> Reached:
    """The workload with these pods; those that the autoscaler does not ask for are not waited for."""
    there = sum(pod.placed for pod in mine)
    near = there and abs(qps / (one.scale.qps_per_replica * there) - 1) <= TOLERANCE
    within = bool(near) and there == len(mine)
    why = () if within else tuple(pod for pod in waiting if (pod.namespace, pod.workload) == one.key)
    return Reached(*one.key, one.wanted(qps), there, within, cold, why)


def unmet(loads: Iterable[Load]) -> Iterator[str]:
    """Workloads that did not get the pods for a load."""
    for load in loads:
        for one in load.workloads:
            if one.pods != one.wanted and not one.within:
                count = f"{one.namespace}/{one.name} has {one.pods} of {one.wanted} pods"
                why = f": {one.waiting[0].why}" if one.waiting else ""
                yield f"{load.qps:g} requests per second: {count}{why}"


def _mine(now: Snapshot, one: Scaled) -> list[Pod]:
    return [pod for pod in now.workloads if (pod.namespace, pod.workload) == one.key and not pod.over]
