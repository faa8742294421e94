"""Checks of selectors, labels and taints of pools against each other, the GPUs and the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from infra.model import labels
from infra.model.errors import InputError
from infra.model.gpu import ONLY_ARM64
from infra.model.node_keys import RESTRICTED, ROLE
from infra.model.pool import Pool
from infra.model.sharing import Mig


def check(cluster: str, gpu_taint: str, pools: Sequence[Pool]) -> None:
    """Refuse the first key that contradicts another pool, the pool's GPUs or what sets it on the nodes."""
    for index, pool in enumerate(pools):
        path = f"pools[{index}]"
        _check_taints(gpu_taint, pool, path)
        _check_apart(pool, pools[:index], path)
        _check_selected(pool, pool.selector or {}, f"{path}.selector")
        if cluster == "aws":
            _check_labels(pool, path)


def _check_taints(gpu_taint: str, pool: Pool, path: str) -> None:
    for index, taint in enumerate(pool.taints):
        if taint.key == gpu_taint:
            every = "every pool with GPUs has it already" if pool.gpus else "only nodes with GPUs have it"
            fact = f"{gpu_taint} is gpu_operator.gpu_taint, and {every}"
            raise InputError(f"{path}.taints[{index}].key", fact, "leave it out, or use another key")


def _check_apart(pool: Pool, others: Sequence[Pool], path: str) -> None:
    """Of selectors by different labels only the cluster can tell whether they find the same nodes."""
    mine = (pool.selector or {}).items()
    for other in others:
        theirs = (other.selector or {}).items()
        if mine and theirs and (mine <= theirs or theirs <= mine):
            fact = f"pool {other.name} selects the same nodes, or some of them"
            raise InputError(f"{path}.selector", fact, "select by a label with another value")


def _check_selected(pool: Pool, selector: Mapping[str, str], path: str) -> None:
    """Nodes of another GPU or processor; the operands run on Linux only."""
    has = _labels(pool)
    for key, value in selector.items():
        if key == labels.HOSTNAME and value != value.lower():
            raise InputError(f"{path}.{key}", f"{value!r} has capital letters", f"use {value.lower()}")
        if selector.get(f"beta.{key}", value) != value:
            fact = f"the kubelet gives beta.{key} the same value, and the selector another"
            raise InputError(f"{path}.{key}", fact, "select by one of them")
        if key.startswith("nvidia.com/") and key.endswith(_NUMBERS) and not re.fullmatch("[0-9]+", value):
            raise InputError(f"{path}.{key}", f"{value!r} is not a number", "write what a node has")
        known = has.get(key, (value,))
        # Discovery appends how the GPU is shared: -SHARED, -MIG-1g.5gb.
        shared = key == labels.GPU_PRODUCT and value.startswith(tuple(f"{one}-" for one in known))
        if value not in known and not shared:
            remedy = f"use {' or '.join(known)}" if known else "leave it out"
            raise InputError(f"{path}.{key}", f"no node of the pool has {value!r}", remedy)


def _older(pool: Pool) -> list[str]:
    return ["ampere" if gpu.compute < (9, 0) else "undefined" for gpu in pool.gpus if gpu.compute >= (8, 9)]


_NUMBERS = (".count", ".major", ".memory", ".minor", ".replicas", ".rev")
"""Ends of discovery's labels with numbers (k8s-device-plugin, internal/lm)."""


def _labels(pool: Pool) -> Mapping[str, Sequence[str]]:
    """Values of labels by which nodes of the pool can be found: the kubelet's, and discovery's of GPUs.

    How GPUs are shared is set once the nodes are found (k8s-device-plugin, internal/lm/resource.go).
    """
    arch = ("arm64",) if {gpu.name for gpu in pool.gpus} & set(ONLY_ARM64) else ("amd64", "arm64")
    replicas = getattr(pool.sharing, "replicas", 1)
    kind = {"time_slicing": "time-slicing", "mps": "mps"}.get(pool.sharing.kind, "none")
    found: dict[str, Sequence[str]] = {
        **dict.fromkeys((labels.OS, "beta.kubernetes.io/os"), ("linux",)),
        **dict.fromkeys((labels.ARCH, "beta.kubernetes.io/arch"), arch),
        labels.GPU_COUNT: [str(count) for count in pool.gpu_counts],
        labels.GPU_PRODUCT: [gpu.product for gpu in pool.gpus],
    }
    has = ("true",) if pool.gpus else ("false",)
    found |= dict.fromkeys((labels.GPU_PRESENT, labels.PCI_PRESENT), has)
    if pool.gpus:
        found |= {
            # Older discovery has no name for newer families.
            "nvidia.com/gpu.family": [*(gpu.family for gpu in pool.gpus), *_older(pool)],
            "nvidia.com/gpu.compute.major": [str(gpu.compute[0]) for gpu in pool.gpus],
            "nvidia.com/gpu.compute.minor": [str(gpu.compute[1]) for gpu in pool.gpus],
            "nvidia.com/mig.strategy": ("none", "single", "mixed"),
            "nvidia.com/mig.capable": [str(gpu.mig_capable).lower() for gpu in pool.gpus],
            "nvidia.com/gpu.sharing-strategy": (kind,),
        }
        if not isinstance(pool.sharing, Mig):
            found["nvidia.com/gpu.replicas"] = (str(replicas),)
    return {key: tuple(dict.fromkeys(values)) for key, values in found.items()}


def _check_labels(pool: Pool, path: str) -> None:
    """A kubelet refuses to start with labels that are for administrators (kubelet, ``--node-labels``).

    Karpenter sets those with ``RESTRICTED`` itself, through the API.
    """
    for key in pool.labels:
        if key.startswith(ROLE) or (key.startswith(RESTRICTED) and not pool.by_karpenter):
            fact = f"the kubelet refuses to set {key!r}, and so would never start"
            raise InputError(f"{path}.labels.{key}", fact, "use a prefix of your own")
