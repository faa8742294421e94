"""EKS add-ons: which come before the first node and which after, and what is set in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.model.environment import Environment
from infra.plan import eks, gpu_operator

VPC_CNI = "vpc-cni"
MONITORING = "eks-node-monitoring-agent"

_BEFORE_NODES = (MONITORING, "eks-pod-identity-agent", "kube-proxy", VPC_CNI)
"""DaemonSets. A node without vpc-cni never gets Ready, and then its node group fails to come up."""


@dataclass(frozen=True)
class PodIdentity:
    """The service account of an add-on that calls AWS, and AWS's own policy for it."""

    service_account: str
    policy: str


POD_IDENTITY: Mapping[str, PodIdentity] = {
    "aws-ebs-csi-driver": PodIdentity("ebs-csi-controller-sa", "service-role/AmazonEBSCSIDriverPolicy"),
}


def before_nodes(env: Environment) -> dict[str, str]:
    """Versions of the add-ons that nodes need to get Ready."""
    return {name: version for name, version in eks.add_ons(env).items() if name in _BEFORE_NODES}


def after_nodes(env: Environment) -> dict[str, str]:
    """Versions of the add-ons that need a node to get Ready: Deployments, above all CoreDNS."""
    return {name: version for name, version in eks.add_ons(env).items() if name not in _BEFORE_NODES}


def settings(env: Environment) -> dict[str, Mapping[str, Any]]:
    """Settings by add-on; what is not named keeps the add-on's own default.

    A pool may ask for more pods than its network interfaces have addresses for, as the source does with 110
    on a g4dn.xlarge, which has 29: the CNI then hands out blocks of 16 addresses, one of them ahead of need.
    """
    found: dict[str, Mapping[str, Any]] = {}
    if env.prefix_delegation:
        found[VPC_CNI] = {"env": {"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"}}
    if env.health is not None and env.health.remediator in ("eks", "karpenter"):
        # Its own DCGM does not get onto tainted nodes by itself, and without it no fault of a GPU is seen
        # [containers-roadmap issue 2567].
        found[MONITORING] = {"dcgmAgent": {"tolerations": gpu_operator.gpu_tolerations(env)}}
    return found
