"""An existing cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from infra.model import clusters


@dataclass(frozen=True, kw_only=True)
class ExistingClusterArgs:
    """The declared cluster: the path of a kubeconfig and, if it has several, the context."""

    cluster: clusters.ExistingCluster


class ExistingCluster(pulumi.ComponentResource):
    """The provider for a cluster made outside this stack; the cluster itself is never changed."""

    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(
        self, name: str, args: ExistingClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuform:cluster:ExistingCluster", name, None, opts)
        kubeconfig = Path(args.cluster.kubeconfig).expanduser()
        self.kubeconfig = pulumi.Output.from_input(str(kubeconfig))
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=str(kubeconfig),
            context=args.cluster.context,
            enable_config_map_mutable=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"kubeconfig": self.kubeconfig})
