"""EKS add-ons: which are installed before the first node and which after, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.model.environment import Environment
from infra.plan import eks, gpu_operator

VPC_CNI = "vpc-cni"
MONITORING = "eks-node-monitoring-agent"

_BEFORE_NODES = (MONITORING, "eks-pod-identity-agent", "kube-proxy", VPC_CNI)
"""DaemonSets. A node without vpc-cni never becomes Ready, and its node group then fails to come up."""


@dataclass(frozen=True)
class PodIdentity:
    """The service account of an add-on that calls the AWS API, and its AWS managed policy."""

    service_account: str
    policy: str


POD_IDENTITY: Mapping[str, PodIdentity] = {
    "aws-ebs-csi-driver": PodIdentity("ebs-csi-controller-sa", "service-role/AmazonEBSCSIDriverPolicy"),
}


def before_nodes(env: Environment) -> dict[str, str]:
    """Versions of the add-ons that nodes need to become Ready."""
    return {name: version for name, version in eks.add_ons(env).items() if name in _BEFORE_NODES}


def after_nodes(env: Environment) -> dict[str, str]:
    """Versions of the add-ons that need a node to become Ready: Deployments, above all CoreDNS."""
    return {name: version for name, version in eks.add_ons(env).items() if name not in _BEFORE_NODES}


def settings(env: Environment) -> dict[str, Mapping[str, Any]]:
    """Settings by add-on; everything else keeps the add-on's defaults.

    A pool may set more pods than its network interfaces have addresses for (the source sets 110 on a
    g4dn.xlarge, which has 29): the CNI then assigns prefixes of 16 addresses and keeps one prefix free.
    """
    found: dict[str, Mapping[str, Any]] = {}
    if env.prefix_delegation:
        found[VPC_CNI] = {"env": {"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"}}
    if env.health is not None and env.health.remediator in ("eks", "karpenter"):
        # The agent's DCGM does not tolerate taints of GPU nodes by default; without it GPU faults go unseen
        # [containers-roadmap issue 2567].
        found[MONITORING] = {"dcgmAgent": {"tolerations": gpu_operator.gpu_tolerations(env)}}
    return found
