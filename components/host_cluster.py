"""Own hosts, prepared by Ansible, and the cluster that they have joined, if any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from components.custom_resources import HostConfiguration, HostConfigurationArgs


@dataclass(frozen=True, kw_only=True)
class HostClusterArgs:
    """What is done on the hosts; with the path of a kubeconfig, a provider for their cluster."""

    hosts: HostConfigurationArgs
    kubeconfig: str | None = None
    context: str | None = None


class HostCluster(pulumi.ComponentResource):
    """One run of a playbook for all hosts; it does not join them to a cluster."""

    hosts: pulumi.Output[Mapping[str, Any]]
    kubeconfig: pulumi.Output[str] | None = None
    provider: kubernetes.Provider | None = None

    def __init__(self, name: str, args: HostClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:hosts:HostCluster", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.hosts = HostConfiguration(f"{name}-configuration", args.hosts, child).hosts
        if args.kubeconfig:
            self.kubeconfig = pulumi.Output.from_input(args.kubeconfig)
            self.provider = kubernetes.Provider(
                f"{name}-kubernetes",
                kubeconfig=args.kubeconfig,
                context=args.context,
                enable_config_map_mutable=True,
                opts=child,
            )
        self.register_outputs({"hosts": self.hosts, "kubeconfig": self.kubeconfig})
