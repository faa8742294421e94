"""The provider that dispatches to the two resource types, with one client per cluster."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from gpuform.plugins.base import ResourceProvider
from gpuform.plugins.handler import Engine, Handler, PluginError, Properties
from gpuform.plugins.kubernetes.client import Client
from gpuform.plugins.kubernetes.kubeconfig import resolve
from gpuform.plugins.nodes.cluster import Cluster
from gpuform.plugins.nodes.mig_layout import MigLayout
from gpuform.plugins.nodes.pool_nodes import PoolNodes
from gpuform.plugins.properties import reveal


class Clusters:
    """Clients by kubeconfig and context: a resource names its cluster itself, the provider has none."""

    def __init__(self) -> None:
        """No client is made before a resource needs it."""
        self._clients: dict[tuple[str, str], Client] = {}

    def of(self, inputs: Properties) -> Cluster:
        """The cluster of a resource's inputs; that it cannot be reached shows in the first request."""
        config = {key: str(reveal(inputs.get(key)) or "") for key in ("kubeconfig", "context")}
        key = (config["kubeconfig"], config["context"])
        if key not in self._clients:
            self._clients[key] = Client(resolve(config))
        return Cluster(self._clients[key])

    async def close(self) -> None:
        """Close every connection."""
        for client in self._clients.values():
            await client.close()


class Nodes(ResourceProvider):
    """``gpuform:nodes:PoolNodes`` and ``gpuform:nodes:MigLayout``."""

    name, version = "gpuform", importlib.metadata.version("gpuform")
    supports_autonaming = False

    def __init__(self, engine: Engine) -> None:
        """Answer ``engine``."""
        super().__init__(engine)
        self._clusters = Clusters()
        self._handlers: dict[str, Handler] = {
            "gpuform:nodes:PoolNodes": PoolNodes(self._clusters.of),
            "gpuform:nodes:MigLayout": MigLayout(self._clusters.of),
        }

    def handler(self, token: str) -> Handler:
        """The handler of one of the two types."""
        if token not in self._handlers:
            raise PluginError(f"{token}: the gpuform provider has {', '.join(sorted(self._handlers))}")
        return self._handlers[token]

    def schema(self) -> dict[str, Any]:
        """Names only: the SDK classes are written by hand (components/node_resources.py)."""
        return {
            "name": self.name,
            "version": self.version,
            "resources": {token: {} for token in self._handlers},
        }

    async def close(self) -> None:
        """Close the clients."""
        await self._clusters.close()
