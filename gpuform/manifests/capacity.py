"""Pods of manifests that wait because the pools cannot have that many GPUs, shares or slices.

An autoscaler may start its maximum: ``maxReplicas`` of a HorizontalPodAutoscaler, or ``maxReplicaCount`` of a
ScaledObject, which is 100 if left out (keda.sh, "ScaledObject specification").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuform.checkout.listing import count_of
from gpuform.manifests.documents import Document, mapping_at
from gpuform.manifests.finding import Finding
from gpuform.manifests.pods import FoundPod
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.placement import fit
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool

_MOST = {"HorizontalPodAutoscaler": ("maxReplicas", 1), "ScaledObject": ("maxReplicaCount", 100)}
"""Key and default of each kind's maximum."""
Scalers = Mapping[Document, tuple[Document, int]]


def scalers(documents: Sequence[Document], default_namespace: str) -> Scalers:
    """Autoscaler and its maximum, by the object that it scales."""
    by_target = {}
    for document in documents:
        if document.kind in _MOST:
            key, default = _MOST[document.kind]
            spec = mapping_at(document.value, ("spec",))
            target, most = mapping_at(spec, ("scaleTargetRef",)), spec.get(key, default)
            if isinstance(most, int):
                kind, name = str(target.get("kind") or "Deployment"), str(target.get("name"))
                by_target[document.namespace(default_namespace), kind, name] = document, most
    keys = {one: (one.namespace(default_namespace), one.kind, one.name) for one in documents}
    return {one: by_target[key] for one, key in keys.items() if key in by_target}


def findings(env: Environment, pods: Iterable[FoundPod], scaling: Scalers) -> Iterator[Finding]:
    """Resources of which all pods together request more than the pools can have."""
    wanted: dict[str, list[FoundPod]] = {}
    for pod in (_at_most(pod, scaling) for pod in pods):
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
            by = scaling.get(pod.document)
            subject = f"up to {count_of(count, 'pod')} by {by[0].title}," if by else count_of(count, "pod")
            fact = (
                f"{subject} of {each} {name}: {starting} would start and {count - starting} "
                f"wait, since the pools have {sum(n or 0 for n in most)} at most"
            )
            yield Finding(pod.document, keys, "warning", fact, "raise the pool's nodes, or run fewer pods")


def _at_most(pod: FoundPod, scaling: Scalers) -> FoundPod:
    """With the pods of its autoscaler's maximum; a replica may have several pods."""
    by = scaling.get(pod.document)
    if by is None or pod.count is None:
        return pod
    replicas = mapping_at(pod.document.value, ("spec",)).get("replicas", 1)
    each = pod.count // replicas if isinstance(replicas, int) and replicas else 1
    return replace(pod, count=max(pod.count, each * by[1]))


def _most_units(pool: Pool, name: str) -> int | None:
    """Units of a resource on all nodes that the pool may have; None if that is not known."""
    key = allocatable.quota_key(name)
    return max((nodes * offered.get(key, 0) for nodes, offered in fit.node_kinds(pool)), default=None)


def _requested_units(env: Environment, name: str) -> int:
    """What the stack's own workloads request of it."""
    key = allocatable.quota_key(name)
    return sum(work.pods * fit.requests_of(env, work).get(key, 0) for work in env.workloads)
