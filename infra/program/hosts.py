"""The part of the program for own hosts. Other targets do not import it."""

from __future__ import annotations

from pathlib import Path

import pulumi

from components.custom_resources import HostConfigurationArgs
from components.host_cluster import HostCluster, HostClusterArgs
from infra.inventory import ROOT, content_hash, inventory, to_json
from infra.model.environment import Environment
from infra.plan.inventory import cluster_of
from infra.program import guards
from infra.program.target import Target


def cluster(env: Environment) -> Target | None:
    """Prepare the hosts; None if they have not joined a cluster for the platform.

    Exports the result of each host as ``hosts``.
    """
    inventory_text, kubeconfig = (
        to_json(inventory(env, Path(pulumi.get_root_directory() or ROOT))),
        cluster_of(env).kubeconfig,
    )
    args = HostClusterArgs(
        hosts=HostConfigurationArgs(inventory=inventory_text, content=content_hash(inventory_text)),
        kubeconfig=str(Path(kubeconfig).expanduser()) if kubeconfig else None,
        context=env.context,
    )
    host = HostCluster(env.name, args, pulumi.ResourceOptions(depends_on=[guards.cluster_guard(env)]))
    pulumi.export("hosts", host.hosts)
    guard = guards.contents_guard(env, host.kubeconfig)
    if host.kubeconfig is None or host.provider is None:
        return None
    return Target(kubeconfig=host.kubeconfig, provider=host.provider, ready=(host, guard))
