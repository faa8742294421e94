"""The program: read the stack's environment, build its parts in order, export what a person asks for."""

from __future__ import annotations

import os
from pathlib import Path

import pulumi

from components.embedded_cluster import EmbeddedCluster, EmbeddedClusterArgs
from components.existing_cluster import ExistingCluster, ExistingClusterArgs
from components.gpu_operator import GpuOperator, GpuOperatorArgs
from components.gpu_sharing import GpuSharing, GpuSharingArgs
from components.mig_layouts import MigLayouts, MigLayoutsArgs
from components.namespaces import Namespaces, NamespacesArgs
from components.node_pools import NodePools, NodePoolsArgs
from components.workloads import Workloads, WorkloadsArgs
from infra.config import parse
from infra.model.environment import Environment
from infra.model.errors import InputError
from infra.plan.sharing import offered


def cluster(env: Environment) -> EmbeddedCluster | ExistingCluster:
    """The cluster half: whatever kind it is, the rest sees a kubeconfig and a provider."""
    if env.cluster.kind == "existing":
        return ExistingCluster(env.name, ExistingClusterArgs(cluster=env.cluster))
    state = os.environ.get("GPUFORM_STATE") or Path(__file__).resolve().parent.parent / ".gpuform"
    return EmbeddedCluster(env.name, EmbeddedClusterArgs(kubeconfig=str(Path(state) / "kubeconfig")))


def platform(env: Environment, on: EmbeddedCluster | ExistingCluster) -> None:
    """The platform half, the same on every kind of cluster; each part comes after those it needs."""

    def after(*parts: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(providers={"kubernetes": on.provider}, depends_on=parts)

    namespaces = Namespaces("namespaces", NamespacesArgs(environment=env), after())
    sharing = GpuSharing("sharing", GpuSharingArgs(environment=env), after(namespaces))
    # A node's label names a key of the new ConfigMap: it moves as late as it can, just before the release.
    pools = NodePools("pools", NodePoolsArgs(environment=env, kubeconfig=on.kubeconfig), after(sharing))
    operator = GpuOperator("gpu-operator", GpuOperatorArgs(environment=env), after(sharing, pools))
    layouts = MigLayouts("mig", MigLayoutsArgs(environment=env, kubeconfig=on.kubeconfig), after(operator))
    Workloads("workloads", WorkloadsArgs(environment=env), after(namespaces, operator, layouts))


def main() -> None:
    """Run as the stack's program; bad input ends it with its message alone."""
    try:
        env = parse(pulumi.Config("gpuform").require_object("environment"))
    except InputError as error:
        raise pulumi.RunError(str(error)) from None
    on = cluster(env)
    platform(env, on)
    pulumi.export("kubeconfig", pulumi.Output.secret(on.kubeconfig))
    pulumi.export("pools", {pool.name: offered(env, pool) for pool in env.pools})


if __name__ == "__main__":
    main()
