"""What the platform half sees of a cluster, whatever made it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kubeconfig, the provider that uses it, and what must be there before the first object.

    ``gone_with`` is the resource whose deletion takes the objects along; None where they are always deleted
    one by one.
    """

    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider
    ready: tuple[pulumi.Resource, ...] = ()
    gone_with: pulumi.Resource | None = None
