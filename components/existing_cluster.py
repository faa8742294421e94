"""A cluster that is there already."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes


@dataclass(frozen=True, kw_only=True)
class ExistingClusterArgs:
    """What names the cluster: a kubeconfig (its path) and, where it has several, the context."""

    kubeconfig: pulumi.Input[str]
    context: str | None = None


class ExistingCluster(pulumi.ComponentResource):
    """The provider for a cluster that somebody else made. Nothing of the cluster itself is changed or destroyed."""

    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(
        self, name: str, args: ExistingClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register the provider that everything of the platform half goes through."""
        super().__init__("gpuform:cluster:ExistingCluster", name, None, opts)
        self.kubeconfig = pulumi.Output.from_input(args.kubeconfig)
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=args.kubeconfig,
            context=args.context,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"kubeconfig": self.kubeconfig})
