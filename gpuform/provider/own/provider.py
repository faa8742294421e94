"""The provider that dispatches to the project's own resource types and to the components of the package."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

from gpuform.checkout.errors import OperationError
from gpuform.provider.base import ResourceProvider
from gpuform.provider.handler import Engine, Handler

if TYPE_CHECKING:
    from gpuform.provider.nodes.cluster import Clusters

_TYPES = {
    "gpuform:nodes:PoolNodes": "nodes.pool_nodes",
    "gpuform:nodes:MigLayout": "nodes.mig_layout",
    "gpuform:nodes:GpuOperatorRemoval": "removals",
    "gpuform:nodes:PoolRemoval": "removals",
    "gpuform:nodes:SimulatedNodes": "nodes.simulated_nodes",
    "gpuform:workloads:BlueGreen": "workloads.blue_green",
    "gpuform:workloads:ScalingRemoval": "removals",
    "gpuform:hosts:HostConfiguration": "hosts.configuration",
    "gpuform:openstack:ReplacementGuard": "guards.replacement",
    "gpuform:guards:LossGuard": "guards.loss",
    "gpuform:queues:KueueRemoval": "removals",
}
"""Module of each type's handler; the handler has the type's name."""
_WITHOUT_CLUSTER = ("hosts.configuration", "guards.replacement")


class GpuformProvider(ResourceProvider):
    """Types for nodes, workloads, queues and hosts, and the guards against losses."""

    name, version = "gpuform", importlib.metadata.version("gpuform")

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._clusters: Clusters | None = None
        self._handlers: dict[str, Any] = {}

    def handler(self, token: str) -> Handler:
        """A type is imported with its first resource, because few stacks use all types."""
        if token not in _TYPES:
            raise OperationError(f"{token}: the gpuform provider has {', '.join(sorted(_TYPES))}")
        if token not in self._handlers:
            module = _TYPES[token]
            cls = getattr(importlib.import_module(f"gpuform.provider.{module}"), token.rpartition(":")[2])
            self._handlers[token] = cls(*([] if module in _WITHOUT_CLUSTER else [self._shared().get]))
        handler: Handler = self._handlers[token]
        return handler

    def _shared(self) -> Clusters:
        from gpuform.provider.nodes.cluster import Clusters

        self._clusters = self._clusters or Clusters()
        return self._clusters

    def schema(self) -> dict[str, Any]:
        """That of the components; classes of the other types are in components/custom_resources.py."""
        return dict(json.loads(self._components.provider.schema))

    @functools.cached_property
    def _components(self) -> Any:
        """Imported when needed: it brings the SDK, and is wired above this package."""
        from pulumi.provider.server import ProviderServicer

        provider = importlib.import_module("infra.program.package").provider()
        return ProviderServicer(provider, [], self.engine.address)

    async def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._reference = f"{request.urn}::{request.id}"
        return await super().Configure(request, context)

    async def Construct(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Resources of this package inside the component get this provider.

        The engine finds a provider by the program's declaration of the package (a path, or an address of
        git), which their own requests do not have.
        """
        request.providers[self.name] = self._reference
        return await self._components.Construct(request, context)

    async def close(self) -> None:
        if hosts := self._handlers.get("gpuform:hosts:HostConfiguration"):
            hosts.close()
        if self._clusters:
            await self._clusters.close()
