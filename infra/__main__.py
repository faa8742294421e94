"""The Pulumi program: read the stack's environment, register its parts in order, export the outputs."""

from __future__ import annotations

import os
from pathlib import Path

import pulumi

from components.embedded_cluster import EmbeddedCluster, EmbeddedClusterArgs
from components.existing_cluster import ExistingCluster, ExistingClusterArgs
from infra import guards
from infra.config import parse
from infra.model.environment import Environment
from infra.model.errors import InputError
from infra.model.offer import claimable
from infra.plan.sharing import summary
from infra.platform import platform
from infra.target import Target


def cluster(env: Environment) -> Target | None:
    """Register the cluster; None if own hosts have not joined one."""
    if env.cluster.kind == "aws":
        from infra import aws  # here, so that other targets do not load the AWS SDK

        return aws.cluster(env)
    if env.cluster.kind == "openstack":
        from infra import openstack

        return openstack.cluster(env)
    if env.cluster.kind == "hosts":
        from infra import hosts

        return hosts.cluster(env)
    if env.cluster.kind == "existing":
        guarded = pulumi.ResourceOptions(depends_on=[guards.of_cluster(env)])
        there = ExistingCluster(env.name, ExistingClusterArgs(cluster=env.cluster), guarded)
        inside = guards.of_contents(env, there.kubeconfig)
        return Target(kubeconfig=there.kubeconfig, provider=there.provider, ready=(inside,))
    state = os.environ.get("GPUFORM_STATE") or Path(__file__).resolve().parent.parent / ".gpuform"
    on = EmbeddedCluster(env.name, EmbeddedClusterArgs(kubeconfig=str(Path(state) / "kubeconfig")))
    return Target(kubeconfig=on.kubeconfig, provider=on.provider)


def main() -> None:
    """Run as the stack's program; an InputError ends it with the message alone, without a traceback."""
    try:
        env = parse(pulumi.Config("gpuform").require_object("environment"))
    except InputError as error:
        raise pulumi.RunError(str(error)) from None
    on = cluster(env)
    if on:
        platform(env, on)
        pulumi.export("kubeconfig", pulumi.Output.secret(on.kubeconfig))
    pulumi.export("environment", env.resolved())
    pulumi.export("pools", {pool.name: summary(env, pool) | claimable(pool) for pool in env.pools})


if __name__ == "__main__":
    main()
