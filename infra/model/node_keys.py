"""Keys of node labels and taints that a pool may have, and the owners of all others.

Sources: Kubernetes' "Well-Known Labels, Annotations and Taints"; Karpenter's pkg/apis/v1/labels.go and
taints.go; cluster-autoscaler's utils/taints; the labels that EKS, GKE and AKS document as theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, ValidationInfo

from infra.model import labels
from infra.model.base import refusing
from infra.model.errors import InputError
from infra.model.gpu import ONLY_ARM64
from infra.model.values import LabelKey

if TYPE_CHECKING:
    from infra.model.pool import Pool

_DOMAINS: Mapping[str, str] = {
    "gpuform.io": "gpuform",
    "nvidia.com": "NVIDIA's operands",
    "kubernetes.io": "Kubernetes",
    "k8s.io": "Kubernetes",
    "kwok.x-k8s.io": "the simulator",
    "cluster.x-k8s.io": "Cluster API",
    "karpenter.sh": "Karpenter",
    "k8s.aws": "AWS and Karpenter",
    "amazonaws.com": "AWS",
    "ebs.csi.aws.com": "the EBS CSI driver",
    "efs.csi.aws.com": "the EFS CSI driver",
    "aws-node-termination-handler": "AWS's node termination handler",
    "cloud.google.com": "GKE",
    "kubernetes.azure.com": "AKS",
    "eksctl.io": "eksctl",
    "openshift.io": "OpenShift",
    "magnum.openstack.org": "Magnum",
    "capi.stackhpc.com": "Magnum's Cluster API driver",
}
"""Owners by domain; each includes its subdomains."""
ROLE, RESTRICTED = "node-role.kubernetes.io/", "node-restriction.kubernetes.io/"
"""Prefixes of Kubernetes' that are for administrators, but that a kubelet must not set on its own node."""
_PLACES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""Set by the cloud; where there is none, by the administrator."""
_EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
_CONTROL_PLANE = (labels.CONTROL_PLANE, f"{ROLE}master")
_TAINTS: Mapping[str, str] = {
    **dict.fromkeys(_CONTROL_PLANE, "the control plane"),
    **dict.fromkeys(
        ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"), "cluster-autoscaler"
    ),
    "node.cilium.io/agent-not-ready": "Cilium",
}
_OWN_PREFIX = "gpuform.io/"
_SET_LATER = (labels.MIG_CONFIG, labels.DEVICE_PLUGIN_CONFIG, labels.DEPLOY_DEVICE_PLUGIN)


def owner(key: str) -> str | None:
    """Who sets keys of this domain (a label's, a taint's or a tag's); None if no program is known to."""
    domain = key.rpartition("/")[0]
    return next((name for suffix, name in _DOMAINS.items() if f".{domain}".endswith(f".{suffix}")), None)


def _pool_label_key(key: str, info: ValidationInfo) -> str:
    is_allowed = key.startswith((ROLE, RESTRICTED)) and key not in _CONTROL_PLANE
    if (info.context or {}).get("cluster") == "hosts":
        is_allowed = is_allowed or key in _PLACES
    setter = owner(key)
    if setter and not is_allowed and key != _EXCLUDED:
        raise InputError("", f"label {key!r} is set by {setter}", "use a prefix of your own")
    return key


def _taint_key(key: str) -> str:
    """NVIDIA's taint is a convention that anybody may use, and so are roles and architectures."""
    is_allowed = key.startswith((labels.NVIDIA_PREFIX, ROLE, RESTRICTED)) or key == labels.ARCH
    setter = _TAINTS.get(key) or (None if is_allowed else owner(key))
    if setter:
        raise InputError("", f"taint {key!r} is set and removed by {setter}", "use a key of your own")
    return key


PoolLabelKey = Annotated[LabelKey, AfterValidator(_pool_label_key)]
TaintKey = Annotated[LabelKey, AfterValidator(_taint_key)]
SelectorKey = Annotated[
    LabelKey,
    # What the stack itself sets on the nodes is not there before they are found.
    refusing(
        lambda key: key.startswith(_OWN_PREFIX) or key in _SET_LATER,
        "gpuform sets {!r} on the nodes that the selector finds",
        "use another label",
    ),
]


def check(
    cluster: str, gpu_taint: str, pools: Sequence[Pool], shared_labels: Sequence[Mapping[str, Sequence[str]]]
) -> None:
    """Refuse the first key that contradicts another pool, the pool's GPUs or what sets it on the nodes.

    ``shared_labels`` are those that each pool's sharing changes, with their values on its nodes afterwards.
    """
    for index, pool in enumerate(pools):
        path = f"pools[{index}]"
        _check_taints(gpu_taint, pool, path)
        _check_overlap(pool, pools[:index], path)
        _check_selector(pool, shared_labels[index], f"{path}.selector")
        if cluster == "aws":
            _check_labels(pool, path)


def _check_taints(gpu_taint: str, pool: Pool, path: str) -> None:
    for index, taint in enumerate(pool.taints):
        if taint.key == gpu_taint:
            reason = "every pool with GPUs has it already" if pool.gpus else "only nodes with GPUs have it"
            fact = f"{gpu_taint} is gpu_operator.gpu_taint, and {reason}"
            raise InputError(f"{path}.taints[{index}].key", fact, "leave it out, or use another key")


def _check_overlap(pool: Pool, others: Sequence[Pool], path: str) -> None:
    """Of selectors by different labels only the cluster can tell whether they find the same nodes."""
    own_labels = (pool.selector or {}).items()
    for other in others:
        other_labels = (other.selector or {}).items()
        if own_labels and other_labels and (own_labels <= other_labels or other_labels <= own_labels):
            fact = f"pool {other.name} selects the same nodes, or some of them"
            raise InputError(f"{path}.selector", fact, "select by a label with another value")


def _check_selector(pool: Pool, shared_labels: Mapping[str, Sequence[str]], path: str) -> None:
    """Nodes of another GPU or processor; the operands run on Linux only.

    A label that sharing changes finds the nodes in every update only by its value afterwards.
    """
    known_labels, selector = _known_labels(pool, bool(shared_labels)), pool.selector or {}
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
            fact = f"the pool's sharing changes {value!r} to {' or '.join(after)}, so the next update"
            raise InputError(f"{path}.{key}", f"{fact} would not find its nodes", _OWN_LABEL)
        # A share that the cluster's own operator decides is appended: -SHARED, -MIG-1g.5gb.
        shared = key == labels.GPU_PRODUCT and value.startswith(tuple(f"{product}-" for product in known))
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


def _check_labels(pool: Pool, path: str) -> None:
    """A kubelet refuses to start with labels that are for administrators (kubelet, ``--node-labels``).

    Karpenter sets those with ``RESTRICTED`` itself, through the API.
    """
    for key in pool.labels:
        if key.startswith(ROLE) or (key.startswith(RESTRICTED) and not pool.by_karpenter):
            fact = f"the kubelet refuses to set {key!r}, and so would never start"
            raise InputError(f"{path}.labels.{key}", fact, "use a prefix of your own")
