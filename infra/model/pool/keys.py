"""Keys of node labels and taints that a pool may have: all but those that something else sets for certain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator

from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.base.fields import LabelKey, refusing

OURS = {"gpuform.io": "gpuform"}
_TAINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"), "cluster-autoscaler"
    ),
    **{
        f"node.kubernetes.io/{name}": "Kubernetes"
        for name in (
            *("not-ready", "unreachable", "unschedulable", "network-unavailable", "out-of-service"),
            *("memory-pressure", "disk-pressure", "pid-pressure"),
        )
    },
    **dict.fromkeys(
        (f"node.cloudprovider.kubernetes.io/{name}" for name in ("uninitialized", "shutdown")), "the cloud"
    ),
    "node.cilium.io/agent-not-ready": "Cilium",
    "ebs.csi.aws.com/agent-not-ready": "the EBS CSI driver",
    "efs.csi.aws.com/agent-not-ready": "the EFS CSI driver",
}
"""Taints that come and go with a node's state ("Well-Known Labels, Annotations and Taints"; each project's
documentation). Those that a platform keeps on a node, as AKS, GKE and SageMaker do, a pool may declare."""
SET_LATER = (labels.MIG_CONFIG, labels.DEVICE_PLUGIN_CONFIG, labels.DEPLOY_DEVICE_PLUGIN)
_STATES = (labels.MIG_CONFIG_STATE, labels.DRIVER_UPGRADE_STATE)
"""Labels that the operator changes with each update of a node."""


def find_owner(key: str, owners: Mapping[str, str]) -> str | None:
    return next((owner for domain, owner in owners.items() if is_in(key, (domain,))), None)


def is_in(key: str, domains: Sequence[str]) -> bool:
    """Whether the key is of one of the domains, or of a subdomain."""
    return f".{key.rpartition('/')[0]}".endswith(tuple(f".{domain}" for domain in domains))


def taint_setter(key: str) -> str | None:
    """Who sets and removes a taint by the node's state; None for one that stays on it."""
    return _TAINTS.get(key) or find_owner(key, {**OURS, "karpenter.sh": "Karpenter"})


def _taint_key(key: str) -> str:
    if setter := taint_setter(key):
        raise InputError("", f"taint {key!r} is set and removed by {setter}", "use a key of your own")
    return key


TaintKey = Annotated[LabelKey, AfterValidator(_taint_key)]
SelectorKey = Annotated[
    LabelKey,
    # What is set on the nodes by the stack itself, or after that, is not there before they are found.
    refusing(
        lambda key: key.startswith("gpuform.io/") or key in (*SET_LATER, *_STATES),
        "an update sets {!r} on the nodes that the selector finds",
        "use another label",
    ),
]
