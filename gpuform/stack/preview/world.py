"""The cluster before the change: nodes of each pool, their pods, and the disruption budgets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.kubernetes.kubeconfigs import answered
from gpuform.usage.cluster_objects import every
from gpuform.usage.nodes import pool_of
from infra.model import labels, monitoring
from infra.model.checks import SYSTEM_NAMESPACES
from infra.model.environment import Environment
from infra.model.workload import DeploymentWorkload


@dataclass(frozen=True, order=True)
class PodRef:
    """A pod that a change would end: its owner, its node, and the budget that limits its eviction."""

    namespace: str
    owner: str
    name: str
    pool: str
    node: str
    gpu: bool
    budget: str = ""

    @property
    def lost(self) -> bool:
        return not self.owner


@dataclass(frozen=True)
class World:
    """Nodes by pool, and the tenants' pods; ``live`` is False if only the declared ones are known."""

    nodes: Mapping[str, tuple[str, ...]]
    pods: tuple[PodRef, ...]
    live: bool = True

    @property
    def every(self) -> tuple[str, ...]:
        """The names of all nodes, sorted."""
        return tuple(sorted(name for names in self.nodes.values() for name in names))

    def on(self, pool: str, gpu_only: bool = False, nodes: Iterable[str] | None = None) -> tuple[PodRef, ...]:
        some = None if nodes is None else set(nodes)
        return tuple(
            pod
            for pod in self.pods
            if pod.pool == pool and (pod.gpu or not gpu_only) and (some is None or pod.node in some)
        )


def declared(env: Environment | None) -> World:
    """The environment's declared workloads, as pods on the pools that they name."""
    if env is None:
        return World({}, (), live=False)
    always = {pool.name: pool.least if env.by_autoscaler(pool) else pool.nodes or 0 for pool in env.pools}
    nodes = {name: tuple(f"{name}-{i}" for i in range(count)) for name, count in always.items()}
    return World(nodes, tuple(_declared(env)), live=False)


def _declared(env: Environment) -> Iterator[PodRef]:
    for work in env.workloads:
        if not work.pool:
            continue
        kind = "deployment" if isinstance(work, DeploymentWorkload) else work.kind
        made = "StatefulSet" if kind == "notebook" else kind.capitalize()
        owner = "" if kind == "pod" else f"{made}/{work.name}"
        gpu = bool(env.pool(work.pool).gpus)
        for index in range(work.pods):
            name = work.name if work.kind == "pod" else f"{work.name}-{index}"
            yield PodRef(work.namespace, owner, name, work.pool, "", gpu)


def read(kubeconfig: Path, context: str | None = None) -> World:
    """Read the cluster. Raises httpx errors if it cannot be reached, or an OSError if it refuses."""
    from kr8s.objects import Node, Pod, PodDisruptionBudget

    from gpuform.kubernetes import session

    with answered():
        api = session.api(kubeconfig, context)
        return seen(*(every(api, kind) for kind in (Node, Pod, PodDisruptionBudget)))


def seen(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    budgets: Iterable[Mapping[str, Any]],
) -> World:
    """The world of these objects, without finished pods and system pods."""
    pools = {node["metadata"]["name"]: pool_of(node["metadata"].get("labels", {})) for node in nodes}
    by_pool: dict[str, list[str]] = {}
    for node, pool in sorted(pools.items()):
        by_pool.setdefault(pool, []).append(node)
    found = [_pod(pod, pools, list(budgets)) for pod in pods if _counts(pod)]
    return World({pool: tuple(names) for pool, names in by_pool.items()}, tuple(sorted(found)))


def _counts(pod: Mapping[str, Any]) -> bool:
    over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    kinds = [owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])]
    system = pod["metadata"]["namespace"] in SYSTEM_NAMESPACES or _measures(pod["metadata"])
    return bool(pod["spec"].get("nodeName")) and not over and not system and "DaemonSet" not in kinds


def _measures(metadata: Mapping[str, Any]) -> bool:
    """Whether the pod belongs to our monitoring: other pods may be in a namespace of that name, too."""
    instance = str(metadata.get("labels", {}).get("app.kubernetes.io/instance", ""))
    return metadata["namespace"] == monitoring.NAMESPACE and instance.startswith(monitoring.RELEASE)


def _pod(pod: Mapping[str, Any], pool_of: Mapping[str, str], budgets: Iterable[Mapping[str, Any]]) -> PodRef:
    metadata, node = pod["metadata"], pod["spec"]["nodeName"]
    return PodRef(
        metadata["namespace"],
        _owner(metadata),
        metadata["name"],
        pool_of.get(node, ""),
        node,
        _uses_gpu(pod["spec"]),
        next((one["metadata"]["name"] for one in budgets if _covers(one, metadata)), ""),
    )


def _owner(metadata: Mapping[str, Any]) -> str:
    """As in ``Deployment/simulation``, also for a pod of its ReplicaSet; empty without a controller."""
    for owner in metadata.get("ownerReferences", []):
        if owner.get("controller"):
            name, kind = owner["name"], owner["kind"]
            hashed = metadata.get("labels", {}).get("pod-template-hash")
            if kind == "ReplicaSet" and hashed:
                return f"Deployment/{name.removesuffix('-' + hashed)}"
            return f"{kind}/{name}"
    return ""


def _uses_gpu(spec: Mapping[str, Any]) -> bool:
    if spec.get("resourceClaims"):
        return True
    return any(
        key.startswith(labels.NVIDIA_PREFIX)
        for container in (*spec.get("containers", []), *spec.get("initContainers", []))
        for key in container.get("resources", {}).get("limits", {})
    )


def _covers(budget: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether a PodDisruptionBudget selects the pod; matchExpressions are assumed to match."""
    if budget["metadata"]["namespace"] != metadata["namespace"]:
        return False
    wanted = budget["spec"].get("selector", {}).get("matchLabels", {})
    has = metadata.get("labels", {})
    return all(has.get(key) == value for key, value in wanted.items())
