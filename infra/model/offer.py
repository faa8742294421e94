"""What a node offers once the operands have acted: resource names, amounts and the product label.

The rules are those of NVIDIA's device plugin and GPU feature discovery 0.20.0 as the project's facts note
them; nothing here looks at a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from infra.model import labels
from infra.model.pool import Pool
from infra.model.sharing import Dra, Exclusive, Mig, Mps, TimeSlicing

MigStrategy = Literal["none", "single", "mixed"]


def mig_resource(profile: str) -> str:
    """The resource of one profile under the strategy mixed; a plus cannot stand in a resource name."""
    return labels.NVIDIA_MIG_PREFIX + profile.replace("+", ".")


def offered(strategy: MigStrategy, pool: Pool, gpus: int | None = None) -> dict[str, int]:
    """Extended resources that a node with ``gpus`` GPUs has to give, all above zero, sorted by name.

    The number may be left out where all nodes of the pool have as many (ValueError where they may differ).
    A resource that is not in the answer is 0 on the node or not there at all. Devices that are had by claim
    are no extended resource: ``claimable`` has those.
    """
    sharing, gpus = pool.sharing, pool.gpu_count if gpus is None else gpus
    if gpus == 0 or isinstance(sharing, Dra):
        return {}
    if isinstance(sharing, TimeSlicing):
        name = labels.NVIDIA_GPU_SHARED if sharing.rename else labels.NVIDIA_GPU
        return {name: gpus * sharing.replicas}
    if isinstance(sharing, Mps):
        return {labels.NVIDIA_GPU: gpus * sharing.replicas}
    if isinstance(sharing, Mig):
        layout = pool.layout or {}
        if strategy == "single":
            return {labels.NVIDIA_GPU: gpus * sum(layout.values())}
        return dict(sorted((mig_resource(name), gpus * count) for name, count in layout.items()))
    assert isinstance(sharing, Exclusive)
    return {labels.NVIDIA_GPU: gpus}


def most(strategy: MigStrategy, pool: Pool) -> dict[str, int]:
    """What the pool's largest node offers; every other one offers the same resources, and less of each."""
    return offered(strategy, pool, pool.gpu_counts[-1])


def gpus_of(pool: Pool, node_labels: Mapping[str, str]) -> int | None:
    """GPUs of one of the pool's live nodes; None where they may differ and Karpenter's label does not say."""
    if len(pool.gpu_counts) == 1:
        return pool.gpu_count
    said = node_labels.get(labels.INSTANCE_GPU_COUNT, "")
    return int(said) if said.isdecimal() else None


def claimable(pool: Pool) -> dict[str, int]:
    """Devices of one node that pods have by claim, by device class; none where a resource is asked for."""
    return {labels.GPU_DEVICE_CLASS: pool.gpu_counts[-1]} if pool.by_claim else {}


def products(strategy: MigStrategy, pool: Pool) -> tuple[str, ...]:
    """The values that nvidia.com/gpu.product may take on the pool's nodes.

    None where GPUs are had by claim: the label is there, but a pod that is pinned by it asks for a resource.
    """
    if pool.by_claim:
        return ()
    sharing = pool.sharing
    if isinstance(sharing, Mps) or (isinstance(sharing, TimeSlicing) and not sharing.rename):
        suffix = "-SHARED"
    elif isinstance(sharing, Mig) and strategy == "single":
        suffix = "-MIG-" + next(iter(pool.layout or {})).replace("+", ".")
    else:
        suffix = ""
    return tuple(gpu.product + suffix for gpu in pool.gpus)


def one_per_pod(pool: Pool) -> bool:
    """Whether the device plugin refuses a pod that asks for more than one share.

    Under MPS it does unless told otherwise, and we never do: two shares are still one client's part.
    """
    if isinstance(pool.sharing, TimeSlicing):
        return pool.sharing.fail_requests_greater_than_one
    return isinstance(pool.sharing, Mps)
