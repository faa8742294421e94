"""What a destroy would delete, and what it would leave alone; read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.checkout.listing import some
from gpuform.stack.destroy.cluster import CLAIM, NODE_CLAIM, NODE_POOL, Cluster, counted, named
from gpuform.stack.destroy.cluster_teardown import balancers, kept_volumes
from gpuform.stack.destroy.teardown import OF_OTHERS, Leftover, Step
from infra.model import labels


@dataclass(frozen=True)
class ClusterContents:
    """What is in the cluster and not, or not only, the engine's to delete.

    ``foreign`` are load balancers and NodePools that the stack did not create: they are deleted all the same,
    for they are in its cluster and would block its nodes and its network. ``queued`` are workloads of others,
    by the stack's queue that they are in.
    """

    workloads: tuple[str, ...] = ()
    balancers: tuple[str, ...] = ()
    node_pools: tuple[str, ...] = ()
    node_claims: int = 0
    claims: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()


def list_queued(cluster: Cluster, queues: Collection[str], environment: str) -> tuple[str, ...]:
    """What the environment did not create, a line for each of these queues."""
    found = cluster.queued(environment) if queues else {}
    return tuple(f"{name}: {some(works)}" for name, works in sorted(found.items()) if name in queues)


def read_contents(cluster: Cluster, workloads: tuple[str, ...], queued: tuple[str, ...]) -> ClusterContents:
    pools = cluster.objects(NODE_POOL)
    found = tuple(f"{kind.name} {named(one)}" for kind, one in balancers(cluster))
    return ClusterContents(
        workloads=workloads,
        balancers=found,
        node_pools=tuple(named(one) for one in pools),
        node_claims=len(cluster.objects(NODE_CLAIM)),
        claims=tuple(named(one) for one in cluster.objects(CLAIM)),
        volumes=tuple(_volume(one) for one in kept_volumes(cluster)),
        # The program declares no Service of type LoadBalancer and no Ingress.
        foreign=(*found, *(f"NodePool {named(one)}" for one in pools if not _ours(one))),
        queued=queued,
    )


def _ours(pool: Mapping[str, Any]) -> bool:
    return labels.POOL in (pool["metadata"].get("labels") or {})


def _volume(one: Mapping[str, Any]) -> str:
    """As in ``vol-0a1b (examples/data)``; the volume's own name if no driver gives a handle."""
    handle = (one["spec"].get("csi") or {}).get("volumeHandle") or named(one)
    claim = one["spec"]["claimRef"]
    return f"{handle} ({claim.get('namespace')}/{claim.get('name')})"


@dataclass(frozen=True)
class Plan:
    """The whole plan; ``kept`` are namespaces that stay; ``notes`` are further lines for its reader.

    ``unfinished``: the state has entries, even if only the engine's own from a run that was killed at its
    end.
    """

    stack: str
    kind: str
    steps: tuple[Step, ...]
    resources: Mapping[str, int]
    inside: ClusterContents = field(default_factory=ClusterContents)
    swept: tuple[Leftover, ...] = ()
    left_alone: tuple[Leftover, ...] = ()
    kept: tuple[str, ...] = ()
    purge: bool = False
    notes: tuple[str, ...] = ()
    unfinished: bool = False
    where: str = "the cloud"

    @property
    def count(self) -> int:
        return sum(self.resources.values())

    @property
    def nothing(self) -> bool:
        return not self.resources and not self.swept and not self.unfinished

    def lines(self) -> Iterator[str]:
        if self.nothing:
            yield f"{self.stack}: nothing is left to destroy"
            return
        yield f"{self.stack}: {counted(self.count, 'resource')} will be deleted, in this order:"
        yield from (f"  {number}. {step.does}" for number, step in enumerate(self.steps, 1))
        for title, listed in self._lists():
            if listed:
                yield f"{title}:"
                yield from (f"  {one}" for one in listed)
        yield from self.notes

    def _lists(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        inside = self.inside
        yield "workloads of the stack", inside.workloads
        yield "NodePools", inside.node_pools
        yield "not created by this stack, but in its cluster, so deleted with it", inside.foreign
        kept = f"data that stays at {self.where}, to be deleted by hand"
        gone = "data that will be lost" if self.purge else kept
        yield f"volumes: {gone}", inside.volumes
        yield "namespaces that stay, with what the stack did not create in them", self.kept
        stays = "without Kueue, what waits stays suspended"
        fate = stays if self.steps is OF_OTHERS else "deleted with its cluster"
        yield f"not created by this stack, but in its queues; {fate}", inside.queued
        yield (
            f"has the cluster's name at {self.where}; deleted if the cluster's controllers do not delete it",
            tuple(map(str, self.swept)),
        )
        yield (
            "in the cluster's network, but not ours, so not deleted; it blocks its subnet",
            tuple(map(str, self.left_alone)),
        )

    def to_json(self) -> dict[str, Any]:
        inside = self.inside
        return {
            "stack": self.stack,
            "cluster": self.kind,
            "resources": dict(self.resources),
            "steps": [step.name for step in self.steps],
            "workloads": list(inside.workloads),
            "node_pools": list(inside.node_pools),
            "node_claims": inside.node_claims,
            "load_balancers": list(inside.balancers),
            "foreign_in_cluster": list(inside.foreign),
            "volumes": {"lost" if self.purge else "kept": list(inside.volumes)},
            "kept_namespaces": list(self.kept),
            "queued": list(inside.queued),
            "sweep": [vars(one) for one in self.swept],
            "left_alone": [vars(one) for one in self.left_alone],
            "notes": list(self.notes),
        }
