"""Own hosts, prepared by Ansible, and the cluster that they have joined, if any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from components.host_resources import HostConfiguration
from infra.model.hosts import HostsCluster


@dataclass(frozen=True, kw_only=True)
class HostClusterArgs:
    """The declared hosts and their Ansible inventory.

    ``inventory`` is JSON text; ``content`` a hash of it, the roles and the playbooks, for the diff.
    """

    cluster: HostsCluster
    inventory: str
    content: str


class HostCluster(pulumi.ComponentResource):
    """One run of site.yml for all hosts; the provider exists if the environment names a kubeconfig.

    It does not join hosts to a cluster.
    """

    hosts: pulumi.Output[Mapping[str, Any]]
    kubeconfig: pulumi.Output[str] | None
    provider: kubernetes.Provider | None

    def __init__(self, name: str, args: HostClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:hosts:HostCluster", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        configured = HostConfiguration(
            f"{name}-configuration", inventory=args.inventory, content=args.content, opts=child
        )
        self.hosts = configured.hosts
        self.kubeconfig, self.provider = None, None
        if args.cluster.kubeconfig:
            path = str(Path(args.cluster.kubeconfig).expanduser())
            self.kubeconfig = pulumi.Output.from_input(path)
            self.provider = kubernetes.Provider(
                f"{name}-kubernetes",
                kubeconfig=path,
                context=args.cluster.context,
                enable_config_map_mutable=True,
                opts=child,
            )
        self.register_outputs({"hosts": self.hosts, "kubeconfig": self.kubeconfig})
