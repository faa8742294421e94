"""Keys of node labels and taints that a pool may have, and the owners of all others.

Sources: Kubernetes' "Well-Known Labels, Annotations and Taints"; Karpenter's pkg/apis/v1/labels.go and
taints.go; cluster-autoscaler's utils/taints; the labels that EKS, GKE and AKS document as theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from infra.model import labels
from infra.model.base import LabelKey
from infra.model.errors import InputError

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
_OURS = "gpuform.io/"
_FOUND_BY_NOTHING = (labels.MIG_CONFIG, labels.DEVICE_PLUGIN_CONFIG, labels.DEPLOY_DEVICE_PLUGIN)


def owner(key: str) -> str | None:
    """Who sets keys of this domain (a label's, a taint's or a tag's); None if no program is known to."""
    domain = key.rpartition("/")[0]
    return next((who for of, who in _DOMAINS.items() if f".{domain}".endswith(f".{of}")), None)


def _label(key: str, info: ValidationInfo) -> str:
    free = key.startswith((ROLE, RESTRICTED)) and key not in _CONTROL_PLANE
    if (info.context or {}).get("cluster") == "hosts":
        free = free or key in _PLACES
    who = owner(key)
    if who and not free and key != _EXCLUDED:
        raise InputError("", f"label {key!r} is set by {who}", "use a prefix of your own")
    return key


def _taint(key: str) -> str:
    """NVIDIA's taint is a convention that anybody may use, and so are roles and architectures."""
    free = key.startswith((labels.NVIDIA_PREFIX, ROLE, RESTRICTED)) or key == labels.ARCH
    who = _TAINTS.get(key) or (None if free else owner(key))
    if who:
        raise InputError("", f"taint {key!r} is set and removed by {who}", "use a key of your own")
    return key


def _selector(key: str) -> str:
    """What the stack itself sets on the nodes is not there before they are found."""
    if key.startswith(_OURS) or key in _FOUND_BY_NOTHING:
        raise InputError(
            "", f"gpuform sets {key!r} on the nodes that the selector finds", "use another label"
        )
    return key


PoolLabelKey = Annotated[LabelKey, AfterValidator(_label)]
TaintKey = Annotated[LabelKey, AfterValidator(_taint)]
SelectorKey = Annotated[LabelKey, AfterValidator(_selector)]
