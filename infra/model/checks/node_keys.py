"""Keys of node labels and taints that a pool may have: all but those that something else sets for certain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.gpu.models import ONLY_ARM64
from infra.model.pool.keys import OURS, SET_LATER, find_owner, is_in
from infra.model.pool.pool import Pool

_SETTERS: Mapping[str, Mapping[str, str]] = {
    "aws": {
        "karpenter.sh": "Karpenter",
        "karpenter.k8s.aws": "Karpenter",
        "topology.k8s.aws": "AWS",
        "eks.amazonaws.com": "EKS",
    },
    "openstack": {"magnum.openstack.org": "Magnum", "capi.stackhpc.com": "Magnum's Cluster API driver"},
    "embedded": {"kwok.x-k8s.io": "the simulator"},
}
"""Domains of node labels that a cloud sets, by kind of cluster: EKS refuses its own labels
(containers-roadmap#1451), a NodePool those of Karpenter. On nodes that exist, server-side apply compares with
what others have set."""
_BY_CLOUD = (labels.ZONE, "topology.kubernetes.io/region", labels.INSTANCE_TYPE)
"""Set by a cloud's controllers; where there is none, by the administrator."""
_KUBELET = ("kubelet.kubernetes.io", "node.kubernetes.io")
"""Kubernetes' domains in which a kubelet may label its own node (k8s.io/kubelet, well_known_labels.go);
Karpenter sets any label through the API (karpenter-provider-aws 1.14.3, RejectForbiddenLabels)."""


def check(cluster: str, pools: Sequence[Pool], shared_labels: Sequence[Mapping[str, Sequence[str]]]) -> None:
    """Refuse the first key that contradicts another pool, the pool's GPUs or what sets it on the nodes.

    ``shared_labels`` are those that each pool's sharing changes, with their values on its nodes afterwards.
    """
    for index, pool in enumerate(pools):
        path = f"pools[{index}]"
        _check_labels(cluster, pool, path)
        _check_overlap(pool, pools[:index], path)
        _check_values(pool, pool.labels, {}, f"{path}.labels")
        _check_values(pool, pool.selector or {}, shared_labels[index], f"{path}.selector")


def _check_overlap(pool: Pool, others: Sequence[Pool], path: str) -> None:
    """Of selectors by different labels only the cluster can tell whether they find the same nodes."""
    own_labels = (pool.selector or {}).items()
    for other in others:
        other_labels = (other.selector or {}).items()
        if own_labels and other_labels and (own_labels <= other_labels or other_labels <= own_labels):
            fact = f"pool {other.name} selects the same nodes, or some of them"
            raise InputError(f"{path}.selector", fact, "select by a label with another value")


def _check_values(
    pool: Pool, selector: Mapping[str, str], shared_labels: Mapping[str, Sequence[str]], path: str
) -> None:
    """Values of labels that only other nodes have; the operands run on Linux only.

    A label that sharing changes finds the nodes in every update only by its value afterwards.
    """
    known_labels = _known_labels(pool, bool(shared_labels))
    for key, value in selector.items():
        if key == labels.HOSTNAME and value != value.lower():
            raise InputError(f"{path}.{key}", f"{value!r} has capital letters", f"use {value.lower()}")
        if selector.get(f"beta.{key}", value) != value:
            fact = f"the kubelet gives beta.{key} the same value, and the selector another"
            raise InputError(f"{path}.{key}", fact, "select by one of them")
        if key.startswith("nvidia.com/") and key.endswith(_NUMBERS) and not re.fullmatch("[0-9]+", value):
            raise InputError(f"{path}.{key}", f"{value!r} is not a number", "write what a node has")
        known = known_labels.get(key, (value,))
        after = shared_labels.get(key, known)
        if value in known and value not in after:
            then = " or ".join(after) or "that of a slice"
            fact = f"the pool's sharing changes {value!r} to {then}, so the next update"
            raise InputError(f"{path}.{key}", f"{fact} would not find its nodes", _OWN_LABEL)
        # A share that the cluster's own operator decides is appended: -SHARED, -MIG-1g.5gb. Drivers before
        # R470 print no NVIDIA (their release notes).
        older = [product.removeprefix("NVIDIA-") for product in known]
        names = tuple(f"{product}-" for product in (*known, *older))
        shared = key == labels.GPU_PRODUCT and f"{value}-".startswith(names)
        if value not in after and not (shared and not shared_labels):
            remedy = f"use {' or '.join(known)}" if known and set(after) == set(known) else _OWN_LABEL
            raise InputError(f"{path}.{key}", f"no node of the pool has {value!r}", remedy)


_OWN_LABEL = "select by a label of your own"
_NUMBERS = (".count", ".major", ".memory", ".minor", ".replicas", ".rev")
"""Ends of discovery's labels with numbers (k8s-device-plugin, internal/lm)."""


def _known_labels(pool: Pool, is_sharing_ours: bool) -> Mapping[str, Sequence[str]]:
    """Values of labels of nodes that are not shared yet: the kubelet's, and discovery's of GPUs."""
    arch = ("arm64",) if {gpu.name for gpu in pool.gpus} & set(ONLY_ARM64) else ("amd64", "arm64")
    values_by_key: dict[str, Sequence[str]] = {
        **dict.fromkeys((labels.OS, "beta.kubernetes.io/os"), ("linux",)),
        **dict.fromkeys((labels.ARCH, "beta.kubernetes.io/arch"), arch),
        labels.GPU_COUNT: [str(count) for count in pool.gpu_counts],
        labels.GPU_PRODUCT: [gpu.product for gpu in pool.gpus],
    }
    has_gpus = ("true",) if pool.gpus else ("false",)
    values_by_key |= dict.fromkeys((labels.GPU_PRESENT, labels.PCI_PRESENT), has_gpus)
    if pool.gpus:
        # Older discovery has no name for newer families.
        newer = [gpu.compute for gpu in pool.gpus if gpu.compute >= (8, 9)]
        older = ["ampere" if compute < (9, 0) else "undefined" for compute in newer]
        values_by_key |= {
            "nvidia.com/gpu.family": [*(gpu.family for gpu in pool.gpus), *older],
            "nvidia.com/gpu.compute.major": [str(gpu.compute[0]) for gpu in pool.gpus],
            "nvidia.com/gpu.compute.minor": [str(gpu.compute[1]) for gpu in pool.gpus],
            "nvidia.com/mig.strategy": ("none", "single", "mixed"),
            "nvidia.com/mig.capable": [str(gpu.mig_capable).lower() for gpu in pool.gpus],
        }
        if is_sharing_ours:
            values_by_key |= {"nvidia.com/gpu.sharing-strategy": ("none",), "nvidia.com/gpu.replicas": ("1",)}
    return {key: tuple(dict.fromkeys(values)) for key, values in values_by_key.items()}


def _check_labels(cluster: str, pool: Pool, path: str) -> None:
    for key in pool.labels:
        fact = f"label {key!r} is set by {{}}"
        setter = find_owner(key, {**OURS, **_SETTERS.get(cluster, {})})
        if key in SET_LATER:
            setter = "gpuform"
        elif key == labels.HOSTNAME:
            setter = "the kubelet"
        elif key in _BY_CLOUD and cluster in ("aws", "openstack"):
            setter = "the cloud"
        elif cluster == "aws" and not setter and not pool.by_karpenter and not _is_kubelets(key):
            setter = "the kubelet, which would not start"
            fact = f"label {key!r} is refused by {{}}"
        if setter:
            raise InputError(f"{path}.labels.{key}", fact.format(setter), "use a prefix of your own")


def _is_kubelets(key: str) -> bool:
    """Whether a kubelet may set the label on its own node."""
    is_restricted = is_in(key, ("kubernetes.io", "k8s.io")) and key not in (labels.OS, labels.ARCH)
    return not is_restricted or is_in(key, _KUBELET)


def warnings(gpu_taint: str, pools: Sequence[Pool]) -> Iterator[str]:
    """Taints that do not keep the cluster's own pods off nodes with GPUs."""
    paths = {"gpu_operator.gpu_taint": gpu_taint}
    for index, pool in enumerate(pools):
        keys = [taint.key for taint in pool.taints] if pool.gpus else []
        paths |= {f"pools[{index}].taints[{place}].key": key for place, key in enumerate(keys)}
    for path, key in paths.items():
        if key in (labels.CRITICAL_ADDONS, labels.CONTROL_PLANE):
            fact = "CoreDNS and the cluster's other own pods tolerate it, and may run on nodes with GPUs"
            yield f"{path}: {fact}; use a key of your own, unless the nodes have it already"
