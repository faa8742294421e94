"""What a node offers once the operands have run: resource names, amounts and the product label.

The rules are those of NVIDIA's device plugin and GPU feature discovery 0.20.0, as noted in the project's
facts; no cluster is queried.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from infra.model.base import labels
from infra.model.gpu.machines import Machine
from infra.model.pool.elastic import CPU, MEMORY_GIB, NODES
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Dra, Exclusive, Mig, Mps, SliceShare, TimeSlicing

_OF_SLICES = (
    *("memory", "multiprocessors", "slices.gi", "slices.ci"),
    *(f"engines.{name}" for name in ("copy", "decoder", "encoder", "jpeg", "ofa")),
)
"""Labels of a MIG device [k8s-device-plugin, internal/resource/nvml-mig-device.go]."""


def mig_resource(profile: str) -> str:
    """Resource name of a profile with strategy mixed; a resource name cannot contain a plus."""
    return labels.NVIDIA_MIG_PREFIX + profile.replace("+", ".")


def shared_name(resource: str, share: TimeSlicing | SliceShare | None) -> str:
    """Name of a resource's shares: with ``rename`` the device plugin adds ``.shared``."""
    return f"{resource}{labels.SHARED}" if share and share.rename else resource


def quota_key(resource: str) -> str:
    """The resource's key in a ResourceQuota, which limits only requests of extended resources."""
    return f"requests.{resource}"


def resources(pool: Pool, gpus: int | None = None) -> dict[str, int]:
    """Extended resources of a node with ``gpus`` GPUs, all above zero, sorted by name.

    ``gpus`` may be left out if all nodes of the pool have the same number (ValueError if they may differ). A
    resource that is not in the result is 0 or absent on the node. Devices that are allocated by claim are not
    extended resources: see ``claimable``.
    """
    sharing, gpus = pool.sharing, pool.gpu_count if gpus is None else gpus
    if gpus == 0 or isinstance(sharing, Dra):
        return {}
    if isinstance(sharing, TimeSlicing):
        return {shared_name(labels.NVIDIA_GPU, sharing): gpus * sharing.replicas}
    if isinstance(sharing, Mps):
        return {labels.NVIDIA_GPU: gpus * sharing.replicas}
    if isinstance(sharing, Mig):
        return _slices(pool, sharing, gpus)
    assert isinstance(sharing, Exclusive)
    return {labels.NVIDIA_GPU: gpus}


def summary(pool: Pool) -> dict[str, Any]:
    """What each node offers; if nodes differ, by their number of GPUs: ``{"1": {...}, ...}``."""
    if len(pool.gpu_counts) == 1:
        return dict(resources(pool))
    return {str(gpus): resources(pool, gpus) for gpus in pool.gpu_counts}


def _slices(pool: Pool, sharing: Mig, gpus: int) -> dict[str, int]:
    slices, share = pool.slices(gpus), sharing.share
    replicas = share.replicas if share else 1
    if pool.strategy == "single":
        return {shared_name(labels.NVIDIA_GPU, share): replicas * sum(slices.values())}
    result = {shared_name(mig_resource(name), share): replicas * count for name, count in slices.items()}
    if pool.whole_gpus:
        result[labels.NVIDIA_GPU] = len(pool.whole_gpus)
    return dict(sorted(result.items()))


def gpu_resources(pool: Pool) -> tuple[str, ...]:
    """GPU resources that the pool's nodes may offer, sorted; empty for GPUs allocated by claim."""
    return tuple(max_resources(pool))


def max_resources(pool: Pool) -> dict[str, int]:
    """What the pool's largest node offers; other nodes offer the same resources, and less of each."""
    return resources(pool, pool.gpu_counts[-1])


def limit_amounts(pool: Pool, machine: Machine) -> dict[str, int]:
    """What one node of that machine counts against an elastic pool's limits, by limit key."""
    size = {CPU: machine.vcpu, MEMORY_GIB: machine.memory, NODES: 1}
    return size | resources(pool, machine.gpus)


def max_nodes(pool: Pool, machine: Machine) -> int:
    """Most nodes of that machine in an elastic pool, within the limits of one capacity type."""
    assert pool.elastic is not None
    usage = limit_amounts(pool, machine)
    return min((limit // usage[key] for key, limit in pool.elastic.max.items() if key in usage), default=0)


def node_gpus(pool: Pool, node_labels: Mapping[str, str]) -> int | None:
    """GPUs of a live node of the pool; None if nodes may differ in it and have no label of it."""
    if len(pool.gpu_counts) == 1:
        return pool.gpu_count
    count = node_labels.get(labels.INSTANCE_GPU_COUNT) or node_labels.get(labels.GPU_COUNT, "")
    return int(count) if count.isdecimal() else None


def claimable(pool: Pool) -> dict[str, int]:
    """Devices for claims on the pool's largest node, by device class; empty if pods request a resource."""
    if not pool.by_claim:
        return {}
    gpus = pool.gpu_counts[-1]
    if not pool.cuts:
        return {labels.GPU_DEVICE_CLASS: gpus}
    return {labels.MIG_DEVICE_CLASS: sum(pool.slices(gpus).values())}


def products(pool: Pool) -> tuple[str, ...]:
    """The values that nvidia.com/gpu.product may take on the pool's nodes.

    Empty for GPUs allocated by claim: the label is set, but a pod that is pinned by it requests a resource.
    """
    if pool.by_claim:
        return ()
    sharing, suffix = pool.sharing, ""
    if isinstance(sharing, Mig) and pool.strategy == "single":
        suffix = "-MIG-" + pool.profiles[0].replace("+", ".")
        suffix += "-SHARED" if sharing.share and not sharing.share.rename else ""
    elif isinstance(sharing, Mps) or (isinstance(sharing, TimeSlicing) and not sharing.rename):
        suffix = "-SHARED"
    return tuple(gpu.product + suffix for gpu in pool.gpus)


def shared_labels(pool: Pool) -> dict[str, tuple[str, ...]]:
    """Labels of discovery that sharing changes, and their values on the shared nodes; none if unknown.

    With strategy single they describe the slices; whole GPUs with MIG have 0 replicas [k8s-device-plugin,
    internal/lm: mig-strategy.go, resource.go].
    """
    if pool.by_claim or not pool.gpus:
        return {}
    sharing, strategy, counts = pool.sharing, pool.strategy, pool.gpu_counts
    share = sharing.share if isinstance(sharing, Mig) else sharing
    replicas, way = getattr(share, "replicas", 1), "none"
    of_slices: dict[str, tuple[str, ...]] = {}
    if isinstance(share, TimeSlicing | SliceShare | Mps):
        way = "mps" if isinstance(share, Mps) else "time-slicing"
    if isinstance(sharing, Mig) and strategy == "single":
        counts = tuple(sum(pool.slices(count).values()) for count in counts)
        of_slices = dict.fromkeys((f"{labels.NVIDIA_GPU}.{name}" for name in _OF_SLICES), ())
    elif isinstance(sharing, Mig):
        replicas = int(bool(pool.whole_gpus))
    return {
        **of_slices,
        labels.GPU_PRODUCT: products(pool),
        labels.GPU_COUNT: tuple(map(str, counts)),
        "nvidia.com/gpu.replicas": (str(replicas),),
        "nvidia.com/gpu.sharing-strategy": (way,),
        "nvidia.com/mig.strategy": (strategy,),
    }


def is_shared(pool: Pool) -> bool:
    """Whether several pods may get the same GPU, or the same slice."""
    sharing = pool.sharing
    return isinstance(sharing, TimeSlicing | Mps) or (isinstance(sharing, Mig) and sharing.share is not None)


def offers_slices(pool: Pool, resource: str | None) -> bool:
    """Whether a unit of the pool's resource is a MIG slice; None stands for claimed devices."""
    return bool(pool.cuts) and not (pool.whole_gpus and resource == labels.NVIDIA_GPU)


def most_per_pod(pool: Pool, resource: str) -> int:
    """Units of a resource that one pod can have on the largest node that the pool may have."""
    offered = max_resources(pool).get(resource, 0)
    return min(1, offered) if one_per_pod(pool, resource) else offered


def one_per_pod(pool: Pool, resource: str) -> bool:
    """Whether the device plugin refuses a pod that requests more than one of that resource of the pool.

    It does so only for shares. With MPS this is the default, which we never change: two shares are still one
    client's part.
    """
    sharing = pool.sharing
    if isinstance(sharing, Mig):
        fails = sharing.share is not None and sharing.share.fail_requests_greater_than_one
        return fails and offers_slices(pool, resource)
    if isinstance(sharing, TimeSlicing):
        return sharing.fail_requests_greater_than_one
    return isinstance(sharing, Mps)


def slice_parts(pool: Pool) -> dict[str, float]:
    """Fraction of a GPU that one slice of each profile is, by compute slices; empty without a layout.

    The slices of a GPU add up to 1: compute slices that its layout leaves unused are counted as theirs. If
    GPUs of a node are cut differently, it is the mean over the node's slices of the profile.
    """
    geometry = pool.gpus[0].geometry if pool.gpus else None
    if geometry is None:
        return {}
    compute = {profile.name: profile.compute for profile in geometry.profiles}
    parts, slices = dict.fromkeys(pool.profiles, Fraction()), dict.fromkeys(pool.profiles, 0)
    for cut in pool.cuts:
        gpus = len(cut.devices or (0,))
        total = sum(compute[name] * count for name, count in cut.layout.items())
        for name, count in cut.layout.items():
            parts[name] += Fraction(gpus * count * compute[name], total)
            slices[name] += gpus * count
    return {name: float(part / slices[name]) for name, part in parts.items()}


def unit_parts(pool: Pool) -> dict[str, float]:
    """Fraction of a GPU (0 to 1) that one unit of each resource is, including slices and their shares."""
    sharing = pool.sharing
    if not pool.gpus:
        return {}
    if not (isinstance(sharing, Mig) and pool.strategy == "mixed"):
        return {name: 1 / count for name, count in resources(pool, 1).items()}
    share = sharing.share
    shares = share.replicas if share else 1
    fractions = {
        shared_name(mig_resource(name), share): part / shares for name, part in slice_parts(pool).items()
    }
    return {**fractions, labels.NVIDIA_GPU: 1.0} if pool.whole_gpus else fractions


def mps_memory_mib(pool: Pool) -> int | None:
    """Memory in MiB of each MPS client, on the smallest of the pool's models; None without MPS.

    The device plugin gives every client an equal part of the GPU's memory, and has no other setting.
    """
    if not isinstance(pool.sharing, Mps):
        return None
    return min(gpu.memory_mib for gpu in pool.gpus) // pool.sharing.replicas
