"""Data of ``gpuform top``: node, GPU, slice, pod; what is requested and what is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpuform.usage.node_prices import total
from gpuform.usage.status import PoolStatus


@dataclass(frozen=True)
class Use:
    """Metrics of a GPU or a slice; None if not measured.

    ``util`` is the part of the time or of the engines that was busy, 0 to 1; memory in bytes. Power and
    temperature exist only for a whole GPU.
    """

    util: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    power_watts: float | None = None
    celsius: float | None = None

    @property
    def measured(self) -> bool:
        return any(value is not None for value in (self.util, self.memory_used, self.power_watts))


@dataclass(frozen=True)
class PodUse:
    """A pod on one device, or on one node if its GPU is not known.

    ``count`` of ``resource`` is what it has there; ``requested`` and ``used`` are in GPUs, ``used`` None
    without measurements. ``attributed``: several pods are on the device; ``used`` is the pod's part by
    request.
    """

    namespace: str
    name: str
    workload: str
    resource: str
    count: int
    requested: float
    used: float | None = None
    attributed: bool = False


@dataclass(frozen=True)
class Fault:
    """A GPU fault.

    ``reason`` is ``xid``, ``ecc``, ``gpu_lost`` and so on; ``kind`` is the class of remedy (``application``,
    ``reset``, ``replace``, ``informational``); ``xid`` is the number of an XID.
    """

    reason: str
    kind: str
    xid: str = ""

    def __str__(self) -> str:
        name = f"XID {self.xid}" if self.xid else self.reason.replace("_", " ")
        return f"{name} ({self.kind})" if self.kind else name


@dataclass(frozen=True)
class Slice:
    """A MIG instance; ``start`` is its first memory slice, ``size`` its part of a GPU, by compute.

    ``compute`` and ``memory`` count its slices, 0 if our table does not have them. ``instance`` is DCGM's
    GPU_I_ID, empty without measurements.
    """

    profile: str
    instance: str
    start: int | None
    compute: int
    memory: int
    size: float
    shares: int
    use: Use
    pods: tuple[PodUse, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """A GPU. With MIG it has ``slices`` and no pods of its own; ``shares`` is how many pods can share it.

    ``compute`` and ``memory`` are its slices, 0 without MIG.
    """

    index: int
    uuid: str
    model: str
    shares: int
    compute: int
    memory: int
    use: Use
    slices: tuple[Slice, ...] = ()
    pods: tuple[PodUse, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def free_word(self) -> str:
        """Word for unallocated parts: "unhealthy" if the GPU needs a reset or a replacement."""
        return "unhealthy" if any(fault.kind in ("reset", "replace") for fault in self.faults) else "free"

    @property
    def all_pods(self) -> Iterator[PodUse]:
        yield from self.pods
        yield from (pod for mig in self.slices for pod in mig.pods)

    @property
    def requested(self) -> float:
        """Requested part, 0 to 1 unless overallocated."""
        return sum(pod.requested for pod in self.all_pods)


@dataclass(frozen=True)
class Node:
    """A node with GPUs; ``unassigned`` pods have one of its GPUs, but it is not known which.

    ``closed`` says why no new pod is scheduled although GPUs are free; empty if pods can be scheduled.
    """

    name: str
    pool: str
    machine: str
    ready: bool
    gpus: tuple[Gpu, ...]
    unassigned: tuple[PodUse, ...] = ()
    closed: str = ""

    @property
    def all_pods(self) -> Iterator[PodUse]:
        """Every pod with a GPU of this node, once for each of its devices."""
        for gpu in self.gpus:
            yield from gpu.all_pods
        yield from self.unassigned

    @property
    def requested(self) -> float:
        return sum(pod.requested for pod in self.all_pods)

    @property
    def busy(self) -> float | None:
        """Number of GPUs in use: the sum of their utilisation; None if that of a measured one is unknown."""
        utilisations = [gpu.use.util for gpu in self.gpus if gpu.use.measured]
        return total(utilisations) if utilisations else None


@dataclass(frozen=True)
class View:
    """Nodes by pool and name. ``why`` says why there are no measurements; empty if Prometheus answered.

    ``simulated``: a node has simulated GPUs, so the values are simulated. ``growing``: pools with bounds.
    """

    nodes: tuple[Node, ...]
    why: str = ""
    simulated: bool = False
    growing: tuple[PoolStatus, ...] = ()

    @property
    def measured(self) -> bool:
        return not self.why

    def filtered(self, namespace: str | None, pool: str | None, node: str | None) -> View:
        """The part for one namespace, pool or node; leaves out GPUs without a pod of the namespace."""
        nodes = [item for item in self.nodes if pool in (None, item.pool) and node in (None, item.name)]
        if namespace is not None:
            nodes = [filtered for item in nodes if (filtered := _filter_pods(item, namespace)) is not None]
        growing = tuple(status for status in self.growing if pool in (None, status.name))
        return replace(self, nodes=tuple(nodes), growing=growing)

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform top --json``."""
        growing = [{"pool": pool.name, "nodes": len(pool.nodes), **pool.min_max} for pool in self.growing]
        return {
            "simulated": self.simulated,
            "prometheus": {"answers": self.measured, "why": self.why},
            "growing": growing,
            "nodes": [_node_json(node) for node in self.nodes],
        }


def _filter_pods(node: Node, namespace: str) -> Node | None:
    def chosen(pods: Iterable[PodUse]) -> tuple[PodUse, ...]:
        return tuple(pod for pod in pods if pod.namespace == namespace)

    gpus = []
    for gpu in node.gpus:
        slices = tuple(replace(mig, pods=chosen(mig.pods)) for mig in gpu.slices if chosen(mig.pods))
        if slices or chosen(gpu.pods):
            gpus.append(replace(gpu, slices=slices, pods=chosen(gpu.pods)))
    filtered = replace(node, gpus=tuple(gpus), unassigned=chosen(node.unassigned))
    return filtered if filtered.gpus or filtered.unassigned else None


def _node_json(node: Node) -> dict[str, Any]:
    return {
        **_rounded_fields(node, "name", "pool", "machine", "ready", "closed"),
        "requested_gpus": _round(node.requested),
        "busy_gpus": _round(node.busy),
        "gpus": [_gpu_json(gpu) for gpu in node.gpus],
        "pods": [_pod_json(pod) for pod in node.unassigned],
    }


def _gpu_json(gpu: Gpu) -> dict[str, Any]:
    return {
        **_rounded_fields(gpu, "index", "uuid", "model", "shares"),
        "requested_gpus": _round(gpu.requested),
        **_use_json(gpu.use),
        "power_watts": _round(gpu.use.power_watts),
        "temperature_celsius": _round(gpu.use.celsius),
        "faults": [{"reason": fault.reason, "class": fault.kind, "xid": fault.xid} for fault in gpu.faults],
        "slices": [
            {
                **_rounded_fields(mig, "profile", "instance", "start", "size", "shares"),
                **_use_json(mig.use),
                "pods": [_pod_json(pod) for pod in mig.pods],
            }
            for mig in gpu.slices
        ],
        "pods": [_pod_json(pod) for pod in gpu.pods],
    }


def _use_json(use: Use) -> dict[str, Any]:
    return {
        "util": _round(use.util),
        "memory_used_bytes": _round(use.memory_used),
        "memory_total_bytes": _round(use.memory_total),
    }


def _rounded_fields(item: Node | Gpu | Slice, *names: str) -> dict[str, Any]:
    values = {name: getattr(item, name) for name in names}
    return {name: _round(value) if isinstance(value, float) else value for name, value in values.items()}


def _pod_json(pod: PodUse) -> dict[str, Any]:
    known = {key: value for key, value in asdict(pod).items() if key not in ("workload", "requested", "used")}
    return {**known, "requested_gpus": _round(pod.requested), "used_gpus": _round(pod.used)}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
