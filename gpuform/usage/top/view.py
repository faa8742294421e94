"""Data of ``gpuform top``: node, GPU, slice, pod; what is requested and what is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpuform.usage.status import PoolStatus


@dataclass(frozen=True)
class Use:
    """Measurements of a GPU or a slice; None if not measured.

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
        what = f"XID {self.xid}" if self.xid else self.reason.replace("_", " ")
        return f"{what} ({self.kind})" if self.kind else what


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
    def vacant(self) -> str:
        """Word for unallocated parts: "unhealthy" if the GPU needs a reset or a replacement."""
        return "unhealthy" if any(one.kind in ("reset", "replace") for one in self.faults) else "free"

    @property
    def everyone(self) -> Iterator[PodUse]:
        yield from self.pods
        for one in self.slices:
            yield from one.pods

    @property
    def requested(self) -> float:
        """Requested part, 0 to 1 unless overallocated."""
        return sum(pod.requested for pod in self.everyone)


@dataclass(frozen=True)
class Node:
    """A node with GPUs; ``loose`` are pods that have one of its GPUs, but it is not known which.

    ``closed`` says why no new pod is scheduled although GPUs are free; empty if pods can be scheduled.
    """

    name: str
    pool: str
    machine: str
    ready: bool
    gpus: tuple[Gpu, ...]
    loose: tuple[PodUse, ...] = ()
    closed: str = ""

    @property
    def everyone(self) -> Iterator[PodUse]:
        """Every pod with a GPU of this node, once for each of its devices."""
        for gpu in self.gpus:
            yield from gpu.everyone
        yield from self.loose

    @property
    def requested(self) -> float:
        return sum(pod.requested for pod in self.everyone)

    @property
    def busy(self) -> float | None:
        """Number of GPUs in use: the sum of their utilisation; None without measurements."""
        found = [gpu.use.util for gpu in self.gpus if gpu.use.util is not None]
        return sum(found) if found else None


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

    def only(self, namespace: str | None, pool: str | None, node: str | None) -> View:
        """The part for one namespace, pool or node; leaves out GPUs without a pod of the namespace."""
        found = [one for one in self.nodes if pool in (None, one.pool) and node in (None, one.name)]
        if namespace is not None:
            found = [kept for one in found if (kept := _of_namespace(one, namespace)) is not None]
        growing = tuple(one for one in self.growing if pool in (None, one.name))
        return replace(self, nodes=tuple(found), growing=growing)

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform top --json``."""
        return {
            "simulated": self.simulated,
            "prometheus": {"answers": self.measured, "why": self.why},
            "growing": [{"pool": one.name, "nodes": len(one.nodes), **one.between} for one in self.growing],
            "nodes": [_node(node) for node in self.nodes],
        }


def _of_namespace(node: Node, namespace: str) -> Node | None:
    def mine(pods: Iterable[PodUse]) -> tuple[PodUse, ...]:
        return tuple(pod for pod in pods if pod.namespace == namespace)

    gpus = []
    for gpu in node.gpus:
        slices = tuple(replace(one, pods=mine(one.pods)) for one in gpu.slices if mine(one.pods))
        if slices or mine(gpu.pods):
            gpus.append(replace(gpu, slices=slices, pods=mine(gpu.pods)))
    kept = replace(node, gpus=tuple(gpus), loose=mine(node.loose))
    return kept if kept.gpus or kept.loose else None


def _node(node: Node) -> dict[str, Any]:
    return {
        **_of(node, "name", "pool", "machine", "ready", "closed"),
        "requested_gpus": _round(node.requested),
        "busy_gpus": _round(node.busy),
        "gpus": [_gpu(gpu) for gpu in node.gpus],
        "pods": [_pod(pod) for pod in node.loose],
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        **_of(gpu, "index", "uuid", "model", "shares"),
        "requested_gpus": _round(gpu.requested),
        **_use(gpu.use),
        "power_watts": _round(gpu.use.power_watts),
        "temperature_celsius": _round(gpu.use.celsius),
        "faults": [{"reason": one.reason, "class": one.kind, "xid": one.xid} for one in gpu.faults],
        "slices": [
            {
                **_of(one, "profile", "instance", "start", "size", "shares"),
                **_use(one.use),
                "pods": [_pod(pod) for pod in one.pods],
            }
            for one in gpu.slices
        ],
        "pods": [_pod(pod) for pod in gpu.pods],
    }


def _use(use: Use) -> dict[str, Any]:
    return {
        "util": _round(use.util),
        "memory_used_bytes": _round(use.memory_used),
        "memory_total_bytes": _round(use.memory_total),
    }


def _of(one: Node | Gpu | Slice, *names: str) -> dict[str, Any]:
    found = {name: getattr(one, name) for name in names}
    return {name: _round(value) if isinstance(value, float) else value for name, value in found.items()}


def _pod(pod: PodUse) -> dict[str, Any]:
    found = {key: value for key, value in asdict(pod).items() if key not in ("workload", "requested", "used")}
    return {**found, "requested_gpus": _round(pod.requested), "used_gpus": _round(pod.used)}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
