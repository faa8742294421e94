"""The part of the program for own hosts. Other targets do not import it."""

from __future__ import annotations

from pathlib import Path

import pulumi

from components.custom_resources import HostConfigurationArgs
from components.host_cluster import HostCluster, HostClusterArgs
from infra import guards
from infra.inventory import content, inventory, text
from infra.model.environment import Environment
from infra.plan.inventory import cluster_of
from infra.target import Target


def cluster(env: Environment) -> Target | None:
    """Prepare the hosts; None if they have not joined a cluster for the platform.

    Exports the result of each host as ``hosts``.
    """
    found, kubeconfig = text(inventory(env)), cluster_of(env).kubeconfig
    args = HostClusterArgs(
        hosts=HostConfigurationArgs(inventory=found, content=content(found)),
        kubeconfig=str(Path(kubeconfig).expanduser()) if kubeconfig else None,
        context=env.context,
    )
    on = HostCluster(env.name, args, pulumi.ResourceOptions(depends_on=[guards.of_cluster(env)]))
    pulumi.export("hosts", on.hosts)
    inside = guards.of_contents(env, on.kubeconfig)
    if on.kubeconfig is None or on.provider is None:
        return None
    return Target(kubeconfig=on.kubeconfig, provider=on.provider, ready=(on, inside))
