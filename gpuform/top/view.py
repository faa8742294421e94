"""What ``gpuform top`` shows: node, GPU, slice, pod; what is asked for and what is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Use:
    """What was measured of a GPU or a slice; None where nobody has.

    ``util`` is the part of the time or of the engines that was busy, 0 to 1; memory in bytes. Power and
    temperature are a whole GPU's: a slice has none of its own.
    """

    util: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    power_watts: float | None = None
    celsius: float | None = None

    @property
    def measured(self) -> bool:
        """Whether there is anything."""
        return any(value is not None for value in (self.util, self.memory_used, self.power_watts))


@dataclass(frozen=True)
class PodUse:
    """A pod on one device, or on one node where nobody tells which of its GPUs the pod has.

    ``count`` of ``resource`` it has there; ``requested`` and ``used`` are in GPUs, ``used`` None where
    nothing was measured. ``attributed``: several are on the device; ``used`` is the pod's part by request.
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
    """What is wrong with a GPU: ``xid``, ``ecc``, ``gpu_lost`` and so on, the class that says what helps
    (``application``, ``reset``, ``replace``, ``informational``), and the XID where it is one.
    """

    reason: str
    kind: str
    xid: str = ""

    def __str__(self) -> str:
        what = f"XID {self.xid}" if self.xid else self.reason.replace("_", " ")
        return f"{what} ({self.kind})" if self.kind else what


@dataclass(frozen=True)
class Slice:
    """A MIG instance; ``start`` is its first memory slice, ``size`` how much of a GPU it is, by compute.

    ``compute`` and ``memory`` count its slices, 0 where no table knows them. ``instance`` is DCGM's GPU_I_ID,
    empty where nothing was measured.
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
    """A GPU. One that is cut has ``slices`` and no pods of its own; ``shares`` is for how many pods it is.

    ``compute`` and ``memory`` are its slices, 0 for one without MIG.
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
        """What to say of what nobody has: a GPU that needs a reset or another one is not there to be had."""
        return "sick" if any(one.kind in ("reset", "replace") for one in self.faults) else "free"

    @property
    def everyone(self) -> Iterator[PodUse]:
        """Every pod on it, or on a slice of it."""
        yield from self.pods
        for one in self.slices:
            yield from one.pods

    @property
    def requested(self) -> float:
        """How much of it is asked for, 0 to 1 unless somebody was given more than there is."""
        return sum(pod.requested for pod in self.everyone)


@dataclass(frozen=True)
class Node:
    """A node with GPUs; ``loose`` are pods that have a GPU of it, and nobody tells which.

    ``closed`` says why no new pod comes to it though its GPUs are free; empty where nothing keeps them off.
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
        """Every pod with a GPU of this node, once for each device that it has."""
        for gpu in self.gpus:
            yield from gpu.everyone
        yield from self.loose

    @property
    def requested(self) -> float:
        """GPUs asked for."""
        return sum(pod.requested for pod in self.everyone)

    @property
    def busy(self) -> float | None:
        """GPUs in use: their utilisation added up; None where nothing was measured."""
        found = [gpu.use.util for gpu in self.gpus if gpu.use.util is not None]
        return sum(found) if found else None


@dataclass(frozen=True)
class Growing:
    """A pool whose nodes come and go: how many there are, whichever are shown, and how many there may be."""

    pool: str
    nodes: int
    min: int
    max: int


@dataclass(frozen=True)
class View:
    """Nodes by pool and name. ``why`` says why nothing is measured; empty where Prometheus answered.

    ``simulated``: one of them at least is none of hardware, and so are its numbers. ``growing`` are the
    pools whose nodes come and go within a number of them.
    """

    nodes: tuple[Node, ...]
    why: str = ""
    simulated: bool = False
    growing: tuple[Growing, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether Prometheus answered."""
        return not self.why

    def only(self, namespace: str | None, pool: str | None, node: str | None) -> View:
        """What concerns one namespace, pool or node; GPUs without a pod of the namespace are left out."""
        found = [one for one in self.nodes if pool in (None, one.pool) and node in (None, one.name)]
        if namespace is not None:
            found = [kept for one in found if (kept := _of_namespace(one, namespace)) is not None]
        growing = tuple(one for one in self.growing if pool in (None, one.pool))
        return replace(self, nodes=tuple(found), growing=growing)

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform top --json``."""
        return {
            "simulated": self.simulated,
            "prometheus": {"answers": self.measured, "why": self.why},
            "growing": [asdict(one) for one in self.growing],
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
        "name": node.name,
        "pool": node.pool,
        "machine": node.machine,
        "ready": node.ready,
        "closed": node.closed,
        "requested_gpus": _round(node.requested),
        "busy_gpus": _round(node.busy),
        "gpus": [_gpu(gpu) for gpu in node.gpus],
        "pods": [_pod(pod) for pod in node.loose],
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "shares": gpu.shares,
        "requested_gpus": _round(gpu.requested),
        **_use(gpu.use),
        "power_watts": _round(gpu.use.power_watts),
        "temperature_celsius": _round(gpu.use.celsius),
        "faults": [{"reason": one.reason, "class": one.kind, "xid": one.xid} for one in gpu.faults],
        "slices": [
            {
                "profile": one.profile,
                "instance": one.instance,
                "start": one.start,
                "size": _round(one.size),
                "shares": one.shares,
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


def _pod(pod: PodUse) -> dict[str, Any]:
    found = {key: value for key, value in asdict(pod).items() if key not in ("workload", "requested", "used")}
    return {**found, "requested_gpus": _round(pod.requested), "used_gpus": _round(pod.used)}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
