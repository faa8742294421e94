"""The own hosts' half of the program; another target never imports this module."""

from __future__ import annotations

import pulumi

from components.host_cluster import HostCluster, HostClusterArgs
from infra.inventory import content, inventory, text
from infra.model.environment import Environment
from infra.plan.inventory import cluster_of
from infra.target import Target


def cluster(env: Environment) -> Target | None:
    """Prepare the hosts; None where they have joined no cluster that the platform could go onto.

    The result of each host is exported as ``hosts``.
    """
    found = text(inventory(env))
    on = HostCluster(
        env.name, HostClusterArgs(cluster=cluster_of(env), inventory=found, content=content(found))
    )
    pulumi.export("hosts", on.hosts)
    if on.kubeconfig is None or on.provider is None:
        return None
    return Target(kubeconfig=on.kubeconfig, provider=on.provider, ready=(on,))
