"""Pods of manifests that wait because the pools cannot have that many GPUs, shares or slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuform.checkout.listing import count_of
from gpuform.manifests.finding import Finding
from gpuform.manifests.pods import FoundPod
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.placement import fit
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool


def findings(env: Environment, pods: Sequence[FoundPod]) -> Iterator[Finding]:
    """Resources of which all pods together request more than the pools can have."""
    wanted: dict[str, list[FoundPod]] = {}
    for pod in pods:
        for name in pod.resources(labels.NVIDIA_PREFIX):
            wanted.setdefault(name, []).append(pod)
    for name, asking in wanted.items():
        pools = [pool for pool in env.pools if name in allocatable.max_resources(pool)]
        most = [_most_units(pool, name) for pool in pools]
        per_node = max((allocatable.max_resources(pool)[name] for pool in pools), default=0)
        counted = [
            (pod, pod.count)
            for pod in asking
            if pod.count is not None and 1 <= pod.total(name) <= per_node  # others have a finding already
        ]
        if not pools or not counted or None in most:
            continue
        free = sum(number for number in most if number is not None) - _requested_units(env, name)
        for pod, count in counted:
            each = int(pod.total(name))
            starting = max(0, min(count, free // each))
            free -= starting * each
            if starting == count:
                continue
            keys = pod.resources(name)[name].keys_of(name)
            fact = (
                f"{count_of(count, 'pod')} of {each} {name}: {starting} would start and {count - starting} "
                f"wait, since the pools have {sum(n or 0 for n in most)} at most"
            )
            yield Finding(pod.document, keys, "warning", fact, "raise the pool's nodes, or run fewer pods")


def _most_units(pool: Pool, name: str) -> int | None:
    """Units of a resource on all nodes that the pool may have; None if that is not known."""
    key = allocatable.quota_key(name)
    return max((nodes * offered.get(key, 0) for nodes, offered in fit.node_kinds(pool)), default=None)


def _requested_units(env: Environment, name: str) -> int:
    """What the stack's own workloads request of it."""
    key = allocatable.quota_key(name)
    return sum(work.pods * fit.requests_of(env, work).get(key, 0) for work in env.workloads)
