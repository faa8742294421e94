"""The provider that dispatches to the project's own resource types."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpuform.checkout.errors import OperationError
from gpuform.provider.base import ResourceProvider
from gpuform.provider.handler import Engine, Handler

if TYPE_CHECKING:
    from gpuform.provider.hosts.configuration import HostConfiguration
    from gpuform.provider.nodes.clusters import Clusters


class Own(ResourceProvider):
    """Types for nodes, workloads, queues and hosts, and the guards against losses."""

    name, version = "gpuform", importlib.metadata.version("gpuform")
    supports_autonaming = False

    def __init__(self, engine: Engine) -> None:
        """A type is imported with its first resource, because few stacks use all types."""
        super().__init__(engine)
        self._clusters: Clusters | None = None
        self._hosts: HostConfiguration | None = None
        self._handlers: dict[str, Handler] = {}
        self._types: dict[str, Callable[[], Handler]] = {
            "gpuform:nodes:PoolNodes": self._pool_nodes,
            "gpuform:nodes:MigLayout": self._mig_layout,
            "gpuform:workloads:BlueGreen": self._blue_green,
            "gpuform:hosts:HostConfiguration": self._host_configuration,
            "gpuform:openstack:ReplacementGuard": self._replacement_guard,
            "gpuform:guards:LossGuard": self._loss_guard,
            "gpuform:queues:KueueRemoval": self._kueue_removal,
        }

    def handler(self, token: str) -> Handler:
        if token not in self._types:
            raise OperationError(f"{token}: the gpuform provider has {', '.join(sorted(self._types))}")
        if token not in self._handlers:
            self._handlers[token] = self._types[token]()
        return self._handlers[token]

    def _shared(self) -> Clusters:
        from gpuform.provider.nodes.clusters import Clusters

        self._clusters = self._clusters or Clusters()
        return self._clusters

    def _pool_nodes(self) -> Handler:
        from gpuform.provider.nodes.pool_nodes import PoolNodes

        return PoolNodes(self._shared().of)

    def _mig_layout(self) -> Handler:
        from gpuform.provider.nodes.mig_layout import MigLayout

        return MigLayout(self._shared().of)

    def _blue_green(self) -> Handler:
        from gpuform.provider.workloads.blue_green import BlueGreen

        return BlueGreen(self._shared().of)

    def _host_configuration(self) -> Handler:
        from gpuform.provider.hosts.configuration import HostConfiguration

        self._hosts = HostConfiguration()
        return self._hosts

    def _replacement_guard(self) -> Handler:
        from gpuform.provider.guards.replacement import ReplacementGuard

        return ReplacementGuard()

    def _loss_guard(self) -> Handler:
        from gpuform.provider.guards.loss import LossGuard

        return LossGuard(self._shared().of)

    def _kueue_removal(self) -> Handler:
        from gpuform.provider.queues.removal import KueueRemoval

        return KueueRemoval(self._shared().of)

    def schema(self) -> dict[str, Any]:
        """Names only: the SDK classes are written by hand (components/custom_resources.py)."""
        return {
            "name": self.name,
            "version": self.version,
            "resources": {token: {} for token in self._types},
        }

    async def close(self) -> None:
        if self._hosts:
            self._hosts.close()
        if self._clusters:
            await self._clusters.close()
