"""Plays loads: after each, KEDA and the HorizontalPodAutoscaler set the pods, and nodes follow them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuform.usage.node_prices import total
from gpuform.usage.nodes import Pod
from gpuform.usage.rehearsal import Load, PendingPod, WorkloadAtLoad
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from lab.rehearse import pods, scaled
from lab.rehearse.cluster import NODE_CLAIMS, Cluster
from lab.rehearse.cost_report import CostReport
from lab.rehearse.exporter import Key, RequestCounters, serve
from lab.rehearse.node_source import NodeSource
from lab.rehearse.scaled import Manifest, ScaledWorkload
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
class _FirstPod:
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
class LoadPlayer:
    """Plays loads on the running cluster; ``env`` has the workloads as declared."""

    env: Environment
    scaled: tuple[ScaledWorkload, ...]
    requests: RequestCounters
    cluster: Cluster
    watch: Watch
    source: NodeSource
    timeout_s: float
    prices: PriceList
    manifests: tuple[Manifest, ...]
    """What is created before any load."""
    _claims: dict[str, dict[str, float]] = field(default_factory=dict)
    """Karpenter's NodeClaims: when each was first seen, and when it was first seen launched."""

    def start_scaling(self) -> tuple[str, ...]:
        """Let KEDA scale the workloads; returns what is not as declared."""
        note = self.source.hasten_removal(self.cluster)
        self.cluster.apply(scaled.scaled_objects(self.env, self.scaled))
        return (*scaled.deviations(self.env, self.scaled), note)

    def play(self, qps: float) -> Load:
        """Play one load until pods and nodes have followed it, or no further change is expected."""
        before = self.watch.observe()
        firsts = {
            work.key: _FirstPod(frozenset(pod.name for pod in _pods_of(before, work)), self._replicas(work))
            for work in self.scaled
        }
        self.requests.play(qps)

        def followed(now: Snapshot) -> bool:
            self._record_steps(now, firsts, before.at)
            targets = ((work.replicas_for(qps), _pods_of(now, work)) for work in self.scaled)
            return all(
                len(own_pods) == wanted and all(pod.is_placed for pod in own_pods)
                for wanted, own_pods in targets
            )

        quiet_s = REACTION_S + max(work.window_s for work in self.scaled)
        self.watch.wait_until(followed, quiet_s, self.timeout_s)
        if self.source.way != "none":
            self.watch.wait_until(lambda now: followed(now) and False, self.source.quiet_s, self.timeout_s)
        now, lives = self.watch.observe(), list(self.watch.lives.values())
        waiting = pods.pending_pods(
            scaled.at_load(self.env, qps, self.scaled), now.workloads, pods.read_events(self.cluster)
        )
        costs = CostReport(self.env, self.prices, self.source.paid())
        return Load(
            qps=qps,
            seconds=now.at - before.at,
            workloads=tuple(
                workload_result(work, qps, _pods_of(now, work), waiting, firsts[work.key].since(before.at))
                for work in self.scaled
            ),
            nodes=len(now.nodes),
            bought=Counter(life.node.machine for life in lives if life.joined > before.at),
            removed=Counter(
                life.node.machine for life in lives if life.removed is not None and life.removed > before.at
            ),
            usd_per_hour=total(costs.usd_per_hour(node) for node in now.nodes),
        )

    def _record_steps(self, now: Snapshot, firsts: Mapping[Key, _FirstPod], began: float) -> None:
        for name, conditions in now.claims:
            times = self._claims.setdefault(name, {"node requested": now.at})
            if "Launched" in conditions.split():
                times.setdefault("node launched", now.at)
        for work in self.scaled:
            first = firsts[work.key]
            if "asked" not in first.times and self._replicas(work) > first.replicas:
                first.times["asked"] = now.at
            if "asked" in first.times:
                new = [pod for pod in _pods_of(now, work) if pod.name not in first.before]
                self._record_start(first, now, new, began)

    def _record_start(self, first: _FirstPod, now: Snapshot, new: Iterable[Pod], began: float) -> None:
        for pod in new:
            created = first.created.setdefault(pod.name, now.at)
            first.times.setdefault("created", created)
            if pod.is_placed and "node joined" not in first.times:
                node = self.launch_steps(pod.node, began, now.at)
                if node or "running" not in first.times:
                    asked_at = first.times["asked"]
                    first.times = {"asked": asked_at, "created": created, **node, "running": now.at}

    def launch_steps(self, node: str, began: float, at: float) -> dict[str, float]:
        """The steps of a node that was launched for this load; empty for another.

        A pod runs there at ``at``, so it is ready, also if it was not when the nodes were read.
        """
        life = self.watch.lives.get(node)
        if life is None or life.joined <= began:
            return {}
        claims = self.cluster.items(NODE_CLAIMS)
        names = (
            item["metadata"]["name"] for item in claims if item.get("status", {}).get("nodeName") == node
        )
        steps = {**self._claims.get(next(names, ""), {}), "node joined": life.joined}
        return {**steps, "node ready": at if life.ready is None else life.ready}

    def _replicas(self, work: ScaledWorkload) -> int:
        return int(self.cluster.get(_DEPLOYMENTS.format(*work.key))["spec"]["replicas"])


@contextmanager
def load_player(
    env: Environment,
    followers: tuple[ScaledWorkload, ...],
    cluster: Cluster,
    watch: Watch,
    source: NodeSource,
    timeout_s: float,
    prices: PriceList,
) -> Iterator[LoadPlayer]:
    requests = RequestCounters({work.key: work.series for work in followers}, lambda: ready_pods(watch.now))
    with serve(requests) as port:
        manifests = scaled.manifests(env, followers, port)
        yield LoadPlayer(env, followers, requests, cluster, watch, source, timeout_s, prices, manifests)


def ready_pods(now: Snapshot) -> Mapping[Key, Key]:
    pods = [pod for pod in now.workloads if pod.is_placed and not pod.has_ended]
    return {(pod.namespace, pod.name): (pod.namespace, pod.workload) for pod in pods}


def workload_result(
    work: ScaledWorkload,
    qps: float,
    own_pods: list[Pod],
    waiting: Iterable[PendingPod],
    cold_start: Mapping[str, float],
) -> WorkloadAtLoad:
    """The workload with these pods; those that the autoscaler does not ask for are not waited for."""
    placed = sum(pod.is_placed for pod in own_pods)
    close = placed and abs(qps / (work.scale.qps_per_replica * placed) - 1) <= TOLERANCE
    within = bool(close) and placed == len(own_pods)
    why = () if within else tuple(pod for pod in waiting if (pod.namespace, pod.workload) == work.key)
    return WorkloadAtLoad(*work.key, work.replicas_for(qps), placed, within, cold_start, why)


def unmet(loads: Iterable[Load]) -> Iterator[str]:
    for load in loads:
        for work in load.workloads:
            if work.pods != work.wanted and not work.within:
                count = f"{work.namespace}/{work.name} has {work.pods} of {work.wanted} pods"
                reason = f": {work.waiting[0].why}" if work.waiting else ""
                yield f"{load.qps:g} requests per second: {count}{reason}"


def _pods_of(now: Snapshot, work: ScaledWorkload) -> list[Pod]:
    return [pod for pod in now.workloads if (pod.namespace, pod.workload) == work.key and not pod.has_ended]
