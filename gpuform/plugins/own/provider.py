"""The provider that dispatches to the project's own resource types."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from gpuform.plugins.base import ResourceProvider
from gpuform.plugins.guards.replacement import ReplacementGuard
from gpuform.plugins.handler import Engine, Handler, PluginError
from gpuform.plugins.hosts.configuration import HostConfiguration
from gpuform.plugins.nodes.clusters import Clusters
from gpuform.plugins.nodes.mig_layout import MigLayout
from gpuform.plugins.nodes.pool_nodes import PoolNodes
from gpuform.plugins.workloads.blue_green import BlueGreen


class Own(ResourceProvider):
    """Types for nodes, for workloads and for hosts, and the guard of what OpenStack would replace."""

    name, version = "gpuform", importlib.metadata.version("gpuform")
    supports_autonaming = False

    def __init__(self, engine: Engine) -> None:
        """Answer ``engine``."""
        super().__init__(engine)
        self._clusters = Clusters()
        self._hosts = HostConfiguration()
        self._handlers: dict[str, Handler] = {
            "gpuform:nodes:PoolNodes": PoolNodes(self._clusters.of),
            "gpuform:nodes:MigLayout": MigLayout(self._clusters.of),
            "gpuform:workloads:BlueGreen": BlueGreen(self._clusters.of),
            "gpuform:hosts:HostConfiguration": self._hosts,
            "gpuform:openstack:ReplacementGuard": ReplacementGuard(),
        }

    def handler(self, token: str) -> Handler:
        """The handler of one of the types."""
        if token not in self._handlers:
            raise PluginError(f"{token}: the gpuform provider has {', '.join(sorted(self._handlers))}")
        return self._handlers[token]

    def schema(self) -> dict[str, Any]:
        """Names only: the SDK classes are written by hand (components/*_resources.py)."""
        return {
            "name": self.name,
            "version": self.version,
            "resources": {token: {} for token in self._handlers},
        }

    async def close(self) -> None:
        """End the runs on hosts, and close the clients."""
        self._hosts.close()
        await self._clusters.close()
