"""Checks of selectors, labels and taints of pools against each other, the GPUs and the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.model import labels
from infra.model.errors import InputError
from infra.model.gpu import ONLY_ARM64
from infra.model.node_keys import RESTRICTED, ROLE
from infra.model.pool import Pool


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
    has: Mapping[str, Sequence[str]] = {
        labels.OS: ("linux",),
        labels.ARCH: ("arm64",) if {gpu.name for gpu in pool.gpus} & set(ONLY_ARM64) else ("amd64", "arm64"),
        labels.GPU_COUNT: [str(count) for count in pool.gpu_counts],
        labels.GPU_PRODUCT: [gpu.product for gpu in pool.gpus],
    }
    for key, value in selector.items():
        known = has.get(key, (value,))
        # Discovery appends how the GPU is shared: -SHARED, -MIG-1g.5gb.
        shared = key == labels.GPU_PRODUCT and value.startswith(tuple(f"{one}-" for one in known))
        if value not in known and not shared:
            remedy = f"use {' or '.join(known)}" if known else "leave it out"
            raise InputError(f"{path}.{key}", f"no node of the pool has {value!r}", remedy)


def _check_labels(pool: Pool, path: str) -> None:
    """A kubelet refuses to start with labels that are for administrators (kubelet, ``--node-labels``).

    Karpenter sets those with ``RESTRICTED`` itself, through the API.
    """
    for key in pool.labels:
        if key.startswith(ROLE) or (key.startswith(RESTRICTED) and not pool.by_karpenter):
            fact = f"the kubelet refuses to set {key!r}, and so would never start"
            raise InputError(f"{path}.labels.{key}", fact, "use a prefix of your own")
