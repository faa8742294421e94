"""The cluster before the change: nodes of each pool, their pods, and the disruption budgets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.kubernetes.selectors import selects
from gpuform.usage.nodes import pool_of
from infra.model.base import labels, namespaces
from infra.model.environment import Environment
from infra.model.placement import driver_upgrade
from infra.model.platform import monitoring
from infra.model.workload.workload import DeploymentWorkload


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
    empty_dir: bool = False
    budget_blocks: bool = False
    """Whether its budget allows no eviction now; False if only the declared pods are known."""

    @property
    def is_lost(self) -> bool:
        return not self.owner


@dataclass(frozen=True)
class Snapshot:
    """Nodes by pool, and the tenants' pods; ``live`` is False if only the declared ones are known.

    ``daemons`` are pods of DaemonSets with GPUs, which no eviction ends; they are not among ``pods``.
    """

    nodes: Mapping[str, tuple[str, ...]]
    pods: tuple[PodRef, ...]
    live: bool = True
    gpu_nodes: frozenset[str] = frozenset()
    daemons: tuple[PodRef, ...] = ()

    @property
    def all_nodes(self) -> tuple[str, ...]:
        """The names of all nodes, sorted."""
        return tuple(sorted(name for names in self.nodes.values() for name in names))

    def pods_on(
        self, pool: str, gpu_only: bool = False, nodes: Iterable[str] | None = None
    ) -> tuple[PodRef, ...]:
        node_names = None if nodes is None else set(nodes)
        return tuple(
            pod
            for pod in self.pods
            if pod.pool == pool
            and (pod.gpu or not gpu_only)
            and (node_names is None or pod.node in node_names)
        )


def declared_snapshot(env: Environment | None) -> Snapshot:
    """The environment's declared workloads, as pods on the pools that they name."""
    if env is None:
        return Snapshot({}, (), live=False)
    counts = {pool.name: pool.min_nodes for pool in env.pools}
    nodes = {name: tuple(f"{name}-{i}" for i in range(count)) for name, count in counts.items()}
    with_gpus = frozenset(node for pool in env.pools if pool.gpus for node in nodes[pool.name])
    return Snapshot(nodes, tuple(_declared_pods(env)), live=False, gpu_nodes=with_gpus)


def _declared_pods(env: Environment) -> Iterator[PodRef]:
    for workload in env.workloads:
        if not workload.pool:
            continue
        kind = "deployment" if isinstance(workload, DeploymentWorkload) else workload.kind
        owner_kind = "StatefulSet" if kind == "notebook" else kind.capitalize()
        owner = "" if kind == "pod" else f"{owner_kind}/{workload.name}"
        gpu = bool(env.pool(workload.pool).gpus)
        for index in range(workload.pods):
            name = workload.name if workload.kind == "pod" else f"{workload.name}-{index}"
            empty_dir = driver_upgrade.has_empty_dir(workload)
            yield PodRef(workload.namespace, owner, name, workload.pool, "", gpu, empty_dir=empty_dir)


def read_snapshot(kubeconfig: Path, context: str | None = None) -> Snapshot:
    """Read the cluster; OSError if it does not answer, or refuses."""
    from gpuform.kubernetes.cluster import Reader
    from gpuform.kubernetes.kinds import BUDGET, NODE, POD

    with Reader(kubeconfig, context) as cluster:
        return parse_snapshot(*(cluster.list_objects(kind) for kind in (NODE, POD, BUDGET)))


def parse_snapshot(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    budgets: Iterable[Mapping[str, Any]],
) -> Snapshot:
    """The snapshot of these objects, without finished pods and system pods."""
    labels_of = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in nodes}
    pools = {name: pool_of(own) for name, own in labels_of.items()}
    by_pool: dict[str, list[str]] = {}
    for node, pool in sorted(pools.items()):
        by_pool.setdefault(pool, []).append(node)
    all_budgets = list(budgets)
    refs = sorted(_pod_ref(pod, pools, all_budgets) for pod in pods if _is_counted(pod))
    daemons = tuple(ref for ref in refs if ref.owner.startswith("DaemonSet/"))
    return Snapshot(
        {pool: tuple(names) for pool, names in by_pool.items()},
        tuple(ref for ref in refs if ref not in daemons),
        gpu_nodes=frozenset(name for name, own in labels_of.items() if own.get(labels.GPU_PRESENT) == "true"),
        daemons=tuple(ref for ref in daemons if ref.gpu),
    )


def _is_counted(pod: Mapping[str, Any]) -> bool:
    has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    system = pod["metadata"]["namespace"] in namespaces.SYSTEM or _is_monitoring(pod["metadata"])
    return bool(pod["spec"].get("nodeName")) and not has_ended and not system


def _is_monitoring(metadata: Mapping[str, Any]) -> bool:
    """Whether the pod belongs to our monitoring: other pods may be in a namespace of that name, too."""
    instance = str(metadata.get("labels", {}).get("app.kubernetes.io/instance", ""))
    return metadata["namespace"] == monitoring.NAMESPACE and instance.startswith(monitoring.RELEASE)


def _pod_ref(
    pod: Mapping[str, Any], pools: Mapping[str, str], budgets: Iterable[Mapping[str, Any]]
) -> PodRef:
    metadata, node = pod["metadata"], pod["spec"]["nodeName"]
    covering = [budget for budget in budgets if _budget_covers(budget, metadata)]
    blocking = [item for item in covering if item.get("status", {}).get("disruptionsAllowed") == 0]
    return PodRef(
        metadata["namespace"],
        _owner_of(metadata),
        metadata["name"],
        pools.get(node, ""),
        node,
        _uses_gpu(pod["spec"]),
        next((budget["metadata"]["name"] for budget in blocking or covering), ""),
        any("emptyDir" in volume for volume in pod["spec"].get("volumes", [])),
        bool(blocking),
    )


def _owner_of(metadata: Mapping[str, Any]) -> str:
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


def _budget_covers(budget: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether a PodDisruptionBudget selects the pod."""
    is_near = budget["metadata"]["namespace"] == metadata["namespace"]
    return is_near and selects(budget["spec"].get("selector"), metadata.get("labels") or {})
