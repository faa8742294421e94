"""The devices of a node that pods can get: whole GPUs, and MIG instances.

Sources, best first: on a simulated node the simulator's own annotations, which also have the placement of
each slice and the id under which it is allocated; else DCGM's series; else the pool's declaration, which is
only what the node should have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpuform.usage.nodes import Node, gpu_id
from gpuform.usage.top.measured import Key, Metrics
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.gpu.models import GPUS, Gpu
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig, Mps, TimeSlicing


@dataclass(frozen=True)
class Device:
    """A GPU, or a slice of one.

    ``size`` is its part of a GPU, by compute slices; ``gpu_slices`` are the compute and memory slices of the
    whole GPU, 0 without MIG. ``ident`` is the id under which a simulated device manager allocates it, empty
    elsewhere. ``key`` locates its measurements, None without any.
    """

    gpu: int
    uuid: str
    model: str
    resource: str
    shares: int
    size: float = 1.0
    profile: str = ""
    start: int | None = None
    compute: int = 0
    memory: int = 0
    gpu_slices: tuple[int, int] = (0, 0)
    ident: str = ""
    key: Key | None = None


def list_devices(env: Environment, pool: Pool, node: Node, metrics: Metrics) -> tuple[Device, ...]:
    """Every device of a node, ordered by GPU."""
    naming = DeviceFactory(env, pool, _gpu_model(pool, node.labels))
    if node.gpus:
        return tuple(_simulated_devices(naming, node))
    if metrics.keys_on(node.name):
        return tuple(_measured_devices(naming, node, metrics))
    return tuple(_declared_devices(naming, pool, node.labels))


@dataclass(frozen=True)
class DeviceFactory:
    """Names of a pool's devices, and the number of pods that can share each."""

    env: Environment
    pool: Pool
    model: Gpu | None

    def model_name(self, measured: str = "") -> str:
        """The model as in the node's label; as measured if it is not in our table."""
        return self.model.product if self.model else measured or "GPU"

    @property
    def gpu_slices(self) -> tuple[int, int]:
        geometry = self.model.geometry if self.model else None
        return (geometry.compute, geometry.memory) if geometry else (0, 0)

    def whole_gpu(self, index: int, uuid: str = "", model: str = "", key: Key | None = None) -> Device:
        sharing = self.pool.sharing
        shares = sharing.replicas if isinstance(sharing, TimeSlicing | Mps) else 1
        resource = allocatable.shared_name(
            labels.NVIDIA_GPU, sharing if isinstance(sharing, TimeSlicing) else None
        )
        if self.pool.by_claim:
            resource = labels.GPU_DEVICE_CLASS
        return Device(
            index,
            uuid,
            self.model_name(model),
            resource,
            shares,
            gpu_slices=self.gpu_slices,
            ident=uuid,
            key=key,
        )

    def mig_instance(self, index: int, uuid: str, profile: str, size: float) -> Device:
        """A MIG instance; ``size`` is used if neither the pool nor the catalogue has the profile."""
        geometry = self.model.geometry if self.model else None
        shape = geometry.profile(profile) if geometry else None
        compute, memory = (shape.compute, shape.memory) if shape else (0, 0)
        share = self.pool.sharing.share if isinstance(self.pool.sharing, Mig) else None
        return Device(
            gpu=index,
            uuid=uuid,
            model=self.model_name(),
            resource=self._resource(profile),
            shares=share.replicas if share else 1,
            size=allocatable.slice_parts(self.pool).get(profile)
            or (compute / self.gpu_slices[0] if compute else size),
            profile=profile,
            compute=compute,
            memory=memory,
            gpu_slices=self.gpu_slices,
        )

    def _resource(self, profile: str) -> str:
        sharing = self.pool.sharing
        if self.pool.by_claim:
            return labels.MIG_DEVICE_CLASS
        share = sharing.share if isinstance(sharing, Mig) else None
        mixed = self.pool.strategy == "mixed"
        return allocatable.shared_name(
            allocatable.mig_resource(profile) if mixed else labels.NVIDIA_GPU, share
        )


def _simulated_devices(naming: DeviceFactory, node: Node) -> Iterator[Device]:
    for device in sorted(node.devices, key=lambda device: (device.gpu, device.start)):
        if not device.profile:
            yield naming.whole_gpu(device.gpu, device.ident)
            continue
        equal = 1 / len(node.layout[str(device.gpu)])
        instance = naming.mig_instance(device.gpu, gpu_id(node.uid, device.gpu), device.profile, equal)
        yield replace(instance, start=device.start, ident=device.ident)


def _measured_devices(naming: DeviceFactory, node: Node, metrics: Metrics) -> Iterator[Device]:
    keys = metrics.keys_on(node.name)
    for key in keys:
        identity, instances = metrics.devices[key], sum(sibling[1] == key[1] for sibling in keys)
        if not identity.profile:
            yield naming.whole_gpu(key[1], identity.uuid, identity.model, key)
        else:
            instance = naming.mig_instance(key[1], identity.uuid, identity.profile, 1 / instances)
            yield replace(instance, model=naming.model_name(identity.model), key=key)


def _declared_devices(naming: DeviceFactory, pool: Pool, tags: Mapping[str, str]) -> Iterator[Device]:
    label = tags.get(labels.GPU_COUNT, "")
    count = int(label) if label.isdecimal() else allocatable.node_gpus(pool, tags) or pool.gpu_counts[-1]
    geometry = naming.model.geometry if naming.model else None
    for index in range(count):
        layout = next((cut.layout for cut in pool.cuts if cut.devices is None or index in cut.devices), {})
        placed = (geometry.placements(layout) if geometry else None) or ()
        if not placed:
            yield naming.whole_gpu(index)
            continue
        for profile, start in placed:
            yield replace(naming.mig_instance(index, "", profile, 1 / len(placed)), start=start)


def _gpu_model(pool: Pool, tags: Mapping[str, str]) -> Gpu | None:
    """The model in the discovery label, with or without a sharing suffix; else the pool's first."""
    product = tags.get(labels.GPU_PRODUCT, "")
    known = (*pool.gpus, *GPUS.values())
    matching = [gpu for gpu in known if product == gpu.product or product.startswith(f"{gpu.product}-")]
    if matching:
        return max(matching, key=lambda gpu: len(gpu.product))
    return pool.gpus[0] if pool.gpus else None
