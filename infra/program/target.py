"""A cluster as the platform sees it, whatever created it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from components.clusters import ClusterArgs, EmbeddedCluster, ExistingCluster
from infra.model import clusters


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kubeconfig, its provider, and the resources that must exist before the first object (``ready``).

    Only elastic pools wait for ``karpenter``. Deleting ``deleted_with`` also deletes the objects; None if
    they are always deleted one by one. ``subnets`` are ids by zone, if the cluster is in an existing VPC.
    """

    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider
    ready: tuple[pulumi.Resource, ...] = ()
    karpenter: tuple[pulumi.Resource, ...] = ()
    deleted_with: pulumi.Resource | None = None
    subnets: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)


def existing(name: str, declared: clusters.ExistingCluster, opts: pulumi.ResourceOptions) -> Target:
    """Register the provider of a cluster made outside this stack."""
    path = str(Path(declared.kubeconfig).expanduser())
    cluster = ExistingCluster(name, ClusterArgs(kubeconfig=path, context=declared.context), opts)
    return Target(kubeconfig=cluster.kubeconfig, provider=cluster.provider)


def embedded(name: str, kubeconfig: pulumi.Input[str], opts: pulumi.ResourceOptions | None = None) -> Target:
    """Register the provider of the control plane on this machine."""
    cluster = EmbeddedCluster(name, ClusterArgs(kubeconfig=kubeconfig), opts)
    return Target(kubeconfig=cluster.kubeconfig, provider=cluster.provider)
