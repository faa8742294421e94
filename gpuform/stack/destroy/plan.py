"""What a destroy would delete, and what it would leave alone; read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.checkout.listing import abbreviate, count_of
from gpuform.kubernetes.cluster import Cluster, name_of
from gpuform.kubernetes.kinds import CLAIM, NODE_CLAIM, NODE_POOL
from gpuform.stack.destroy.cluster_teardown import list_balancers, list_kept_volumes
from gpuform.stack.destroy.teardown import ENGINE_ONLY, Leftover, Step
from infra.model.base import labels


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
    by_queue = cluster.list_queued(environment) if queues else {}
    return tuple(f"{name}: {abbreviate(works)}" for name, works in sorted(by_queue.items()) if name in queues)


def read_contents(cluster: Cluster, workloads: tuple[str, ...], queued: tuple[str, ...]) -> ClusterContents:
    pools = cluster.list_objects(NODE_POOL)
    load_balancers = tuple(f"{kind.name} {name_of(item)}" for kind, item in list_balancers(cluster))
    return ClusterContents(
        workloads=workloads,
        balancers=load_balancers,
        node_pools=tuple(name_of(pool) for pool in pools),
        node_claims=len(cluster.list_objects(NODE_CLAIM)),
        claims=tuple(name_of(claim) for claim in cluster.list_objects(CLAIM)),
        volumes=tuple(_describe_volume(volume) for volume in list_kept_volumes(cluster)),
        # The program declares no Service of type LoadBalancer and no Ingress.
        foreign=(*load_balancers, *(f"NodePool {name_of(pool)}" for pool in pools if not _is_own(pool))),
        queued=queued,
    )


def _is_own(pool: Mapping[str, Any]) -> bool:
    return labels.POOL in (pool["metadata"].get("labels") or {})


def _describe_volume(volume: Mapping[str, Any]) -> str:
    """As in ``vol-0a1b (examples/data)``; the volume's own name if no driver gives a handle."""
    handle = (volume["spec"].get("csi") or {}).get("volumeHandle") or name_of(volume)
    claim = volume["spec"]["claimRef"]
    return f"{handle} ({claim.get('namespace')}/{claim.get('name')})"


@dataclass(frozen=True)
class Plan:
    """The whole plan; ``kept_namespaces`` stay; ``notes`` are further lines for its reader.

    ``unfinished``: the state has entries, even if only the engine's own from a run that was killed at its
    end.
    """

    stack: str
    kind: str
    steps: tuple[Step, ...]
    resources: Mapping[str, int]
    contents: ClusterContents = field(default_factory=ClusterContents)
    leftovers: tuple[Leftover, ...] = ()
    foreign_resources: tuple[Leftover, ...] = ()
    kept_namespaces: tuple[str, ...] = ()
    purge: bool = False
    notes: tuple[str, ...] = ()
    unfinished: bool = False
    cloud: str = "the cloud"

    @property
    def count(self) -> int:
        return sum(self.resources.values())

    @property
    def is_empty(self) -> bool:
        return not self.resources and not self.leftovers and not self.unfinished

    def text_lines(self) -> Iterator[str]:
        if self.is_empty:
            yield f"{self.stack}: nothing is left to destroy"
            return
        yield f"{self.stack}: {count_of(self.count, 'resource')} will be deleted, in this order:"
        yield from (f"  {number}. {step.description}" for number, step in enumerate(self.steps, 1))
        for title, entries in self._lists():
            if entries:
                yield f"{title}:"
                yield from (f"  {entry}" for entry in entries)
        yield from self.notes

    def _lists(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        contents = self.contents
        yield "workloads of the stack", contents.workloads
        yield "NodePools", contents.node_pools
        yield "not created by this stack, but in its cluster, so deleted with it", contents.foreign
        kept_text = f"data that stays at {self.cloud}, to be deleted by hand"
        fate_of_data = "data that will be lost" if self.purge else kept_text
        yield f"volumes: {fate_of_data}", contents.volumes
        yield "namespaces that stay, with what the stack did not create in them", self.kept_namespaces
        suspended = "without Kueue, what waits stays suspended"
        queue_fate = suspended if self.steps is ENGINE_ONLY else "deleted with its cluster"
        yield f"not created by this stack, but in its queues; {queue_fate}", contents.queued
        yield (
            f"has the cluster's name at {self.cloud}; deleted if the cluster's controllers do not delete it",
            tuple(map(str, self.leftovers)),
        )
        yield (
            "in the cluster's network, but not ours, so not deleted; it blocks its subnet",
            tuple(map(str, self.foreign_resources)),
        )

    def to_json(self) -> dict[str, Any]:
        contents = self.contents
        return {
            "stack": self.stack,
            "cluster": self.kind,
            "resources": dict(self.resources),
            "steps": [step.name for step in self.steps],
            "workloads": list(contents.workloads),
            "node_pools": list(contents.node_pools),
            "node_claims": contents.node_claims,
            "load_balancers": list(contents.balancers),
            "foreign_in_cluster": list(contents.foreign),
            "volumes": {"lost" if self.purge else "kept": list(contents.volumes)},
            "kept_namespaces": list(self.kept_namespaces),
            "queued": list(contents.queued),
            "sweep": [vars(leftover) for leftover in self.leftovers],
            "left_alone": [vars(leftover) for leftover in self.foreign_resources],
            "notes": list(self.notes),
        }
