"""The control plane on this machine, as the platform half sees it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes


@dataclass(frozen=True, kw_only=True)
class EmbeddedClusterArgs:
    """What names the cluster.

    ``kubeconfig`` is a path: the embedded control plane keeps it up to date there, so a restart on other
    ports is no change of the stack.
    """

    kubeconfig: pulumi.Input[str]


class EmbeddedCluster(pulumi.ComponentResource):
    """The embedded control plane's provider. Starting the control plane is ``gpuform local start``."""

    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(
        self, name: str, args: EmbeddedClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register the provider that everything of the platform half goes through."""
        super().__init__("gpuform:cluster:EmbeddedCluster", name, None, opts)
        self.kubeconfig = pulumi.Output.from_input(args.kubeconfig)
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=args.kubeconfig,
            enable_config_map_mutable=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"kubeconfig": self.kubeconfig})
