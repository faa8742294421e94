"""An EKS cluster's add-ons, endpoints, kubeconfig, and Karpenter's two releases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from infra import versions
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import ExistingNetwork
from infra.model.environment import Environment
from infra.plan import gpu_operator, karpenter, node_groups
from infra.plan.charts import ChartRelease, Values, plan_release

KARPENTER_NAMESPACE = "kube-system"
"""Where the source and upstream install Karpenter; API Priority and Fairness protects its requests there."""
SERVICE_ACCOUNT = "karpenter"
VPC_CNI = "vpc-cni"
MONITORING_AGENT = "eks-node-monitoring-agent"

_BEFORE_NODES = (MONITORING_AGENT, "eks-pod-identity-agent", "kube-proxy", VPC_CNI)
"""DaemonSets. A node without vpc-cni never becomes Ready, and its node group then fails to come up."""
_ALWAYS = ("ec2", "ecr.api", "ecr.dkr", "sts")
EVERY_ENDPOINT = tuple(sorted((*_ALWAYS, "eks", "eks-auth", "sqs", "ssm")))
"""All that nodes, Karpenter and the Pod Identity agent call, except S3, IAM and the price list."""


@dataclass(frozen=True)
class PodIdentity:
    """The service account of an add-on that calls the AWS API, and its AWS managed policy."""

    service_account: str
    policy: str


POD_IDENTITY: Mapping[str, PodIdentity] = {
    "aws-ebs-csi-driver": PodIdentity("ebs-csi-controller-sa", "service-role/AmazonEBSCSIDriverPolicy")
}


def add_ons(env: Environment) -> dict[str, str]:
    """Version by add-on name: the declared one, or the one pinned for the cluster's Kubernetes version."""
    cluster = node_groups.cluster_of(env)
    declared = {str(name): version for name, version in cluster.add_ons.items()}
    return dict(sorted({**versions.EKS_ADD_ONS.get(cluster.version, {}), **declared}.items()))


def before_nodes(env: Environment) -> dict[str, str]:
    """Versions of the add-ons that nodes need to become Ready."""
    return {name: version for name, version in add_ons(env).items() if name in _BEFORE_NODES}


def after_nodes(env: Environment) -> dict[str, str]:
    """Versions of the add-ons that need a node to become Ready: Deployments, above all CoreDNS."""
    return {name: version for name, version in add_ons(env).items() if name not in _BEFORE_NODES}


def add_on_settings(env: Environment) -> dict[str, Mapping[str, Any]]:
    """Settings by add-on; everything else keeps the add-on's defaults.

    A pool may set more pods than its network interfaces have addresses for (the source sets 110 on a
    g4dn.xlarge, which has 29): the CNI then assigns prefixes of 16 addresses and keeps one prefix free.
    """
    settings: dict[str, Mapping[str, Any]] = {}
    if env.prefix_delegation:
        settings[VPC_CNI] = {"env": {"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"}}
    if env.health is not None and env.health.repair:
        # The agent's DCGM does not tolerate taints of GPU nodes by default; without it GPU faults go unseen
        # [containers-roadmap issue 2567].
        settings[MONITORING_AGENT] = {"dcgmAgent": {"tolerations": gpu_operator.gpu_tolerations(env)}}
    return settings


def interface_endpoints(cluster: AwsCluster) -> tuple[str, ...]:
    """AWS services with an endpoint inside the VPC: their traffic, images above all, then costs no NAT.

    None in an existing VPC: its owner creates them. A cluster without a public endpoint also gets those
    that Karpenter and the Pod Identity agent call; IAM and the price list have no endpoint, so NAT is still
    needed.
    """
    if isinstance(cluster.network, ExistingNetwork):
        return ()
    return _ALWAYS if cluster.endpoint.public_cidrs else EVERY_ENDPOINT


def kubeconfig(region: str, joining: node_groups.JoinSettings) -> str:
    """A kubeconfig, as JSON, that gets a token from the AWS command line."""
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "aws",
        "args": ["eks", "get-token", "--region", region, "--cluster-name", joining.name, "--output", "json"],
        "interactiveMode": "Never",
    }
    name = joining.name
    cluster = {"server": joining.endpoint, "certificate-authority-data": joining.certificate_authority}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"exec": command}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return json.dumps(content)


def interruption_queue(env: Environment) -> str:
    """Name of the SQS queue for interruption events: the cluster's, as in the source and upstream."""
    return env.name


def karpenter_crd_release(env: Environment) -> ChartRelease:
    """Karpenter's CRDs as a release of their own: Helm never upgrades CRDs that a chart bundles."""
    return _release(env, "karpenter-crd", {})


def karpenter_release(env: Environment) -> ChartRelease:
    """Karpenter itself, without its CRDs."""
    return _release(env, "karpenter", karpenter_values(env))


def _release(env: Environment, chart: str, values: Values) -> ChartRelease:
    target = KARPENTER_NAMESPACE, chart
    planned = plan_release(
        env, f"{versions.KARPENTER_REPOSITORY}/{chart}", None, versions.KARPENTER, target, values
    )
    return replace(planned, skip_crds=True)  # the first release has them as templates


def karpenter_values(env: Environment) -> Values:
    """Chart values: the source's, and the feature gates that the pools need.

    The chart places each replica on a different node, and never on a node that Karpenter made. There are at
    most as many replicas as system nodes, or the release would wait for a pod that fits on no node.
    """
    size = {"cpu": "1", "memory": "1Gi"}
    return {
        "controller": {"resources": {"requests": size, "limits": dict(size)}},
        "replicas": min(2, node_groups.cluster_of(env).system.nodes),
        "serviceAccount": {"name": SERVICE_ACCOUNT},
        "settings": {
            "clusterName": env.name,
            "eksControlPlane": True,
            "interruptionQueue": interruption_queue(env),
            "featureGates": _feature_gates(env),
        },
    }


def _feature_gates(env: Environment) -> Values:
    """Feature gates; those of static pools and of repair keep the chart's default (off) unless needed."""
    repairs = env.health is not None and env.health.repair == "karpenter"
    reserved = any(pool.by_karpenter and "reserved" in pool.capacity for pool in env.pools)
    return {
        **({"nodeRepair": True} if repairs else {}),
        "nodeOverlay": any(karpenter.node_overlays(env, pool) for pool in env.pools),
        "reservedCapacity": reserved,
        **({"staticCapacity": True} if any(pool.by_claim for pool in env.pools) else {}),
    }
