"""The clusters that resources name, with one client for each."""

from __future__ import annotations

from gpuform.kubernetes.client import Client
from gpuform.kubernetes.kubeconfig import resolve
from gpuform.plugins.handler import Properties
from gpuform.plugins.nodes.cluster import Cluster
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
