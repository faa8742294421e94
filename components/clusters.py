"""Clusters that exist: each is a kubeconfig and its provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pulumi
import pulumi_kubernetes as kubernetes


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    """``kubeconfig`` is a path; ``context`` is needed if it has several."""

    kubeconfig: pulumi.Input[str]
    context: str | None = None


class ExistingCluster(pulumi.ComponentResource):
    """The provider for a cluster made outside this stack; the cluster itself is never changed."""

    TYPE: ClassVar[str] = "gpuform:cluster:ExistingCluster"
    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self.kubeconfig = pulumi.Output.from_input(args.kubeconfig)
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=args.kubeconfig,
            context=args.context,
            enable_config_map_mutable=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"kubeconfig": self.kubeconfig})


class EmbeddedCluster(ExistingCluster):
    """The embedded control plane's provider; ``gpuform local start`` starts the control plane.

    The control plane updates the kubeconfig, so a restart on other ports does not change the stack.
    """

    TYPE = "gpuform:cluster:EmbeddedCluster"
