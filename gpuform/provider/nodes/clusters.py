"""The clusters that resources name, with one client per cluster."""

from __future__ import annotations

from gpuform.kubernetes.client import Client
from gpuform.kubernetes.kubeconfig import resolve
from gpuform.provider.handler import Properties
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.properties import reveal


class Clusters:
    """Clients by kubeconfig and context: each resource names its own cluster, the provider has none."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], Client] = {}

    def of(self, inputs: Properties) -> Cluster:
        """The cluster of a resource's inputs; an unreachable cluster fails at the first request."""
        config = {key: str(reveal(inputs.get(key)) or "") for key in ("kubeconfig", "context")}
        key = (config["kubeconfig"], config["context"])
        if key not in self._clients:
            self._clients[key] = Client(resolve(config))
        return Cluster(self._clients[key])

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
