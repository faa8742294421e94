"""A cluster as the platform sees it, whatever created it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_kubernetes as kubernetes


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kubeconfig, its provider, and the resources that must exist before the first object (``ready``).

    Deleting the resource ``gone_with`` also deletes the objects; None if they are always deleted one by one.
    ``subnets`` are ids by zone, if the cluster is in an existing VPC.
    """

    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider
    ready: tuple[pulumi.Resource, ...] = ()
    gone_with: pulumi.Resource | None = None
    subnets: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)
