"""The embedded control plane on this machine, as the platform sees it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes


@dataclass(frozen=True, kw_only=True)
class EmbeddedClusterArgs:
    """``kubeconfig`` is a path.

    The embedded control plane updates the file, so a restart on other ports does not change the stack.
    """

    kubeconfig: pulumi.Input[str]


class EmbeddedCluster(pulumi.ComponentResource):
    """The embedded control plane's provider; ``gpuform local start`` starts the control plane."""

    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(
        self, name: str, args: EmbeddedClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuform:cluster:EmbeddedCluster", name, None, opts)
        self.kubeconfig = pulumi.Output.from_input(args.kubeconfig)
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=args.kubeconfig,
            enable_config_map_mutable=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"kubeconfig": self.kubeconfig})
