"""The stand-in of pulumi-resource-openstack: cluster templates, clusters and node groups of Magnum.

It behaves as the official provider does (terraform-provider-openstack, openstack/*containerinfra*), and
differs where that one leaves a user alone: a failure carries Magnum's reason and is repaired by the next up,
waits believe no status that is older than the request, an interrupted create is gone on with (see `begun`),
a second cluster of one name is refused, and what keeps a deletion from ending is named.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.base import ResourceProvider
from gpuform.plugins.handler import Change, Checked, Diffed, Engine, Handler, PluginError, Properties
from gpuform.plugins.openstack import functions
from gpuform.plugins.openstack.clouds import KNOWN, Clouds, failures
from gpuform.plugins.openstack.clusters import Clusters
from gpuform.plugins.openstack.groups import NodeGroups
from gpuform.plugins.openstack.resource import MagnumResource
from gpuform.plugins.openstack.templates import ClusterTemplates
from gpuform.plugins.properties import reveal

_TYPES: Mapping[str, type[MagnumResource]] = {
    "openstack:containerinfra/clusterTemplate:ClusterTemplate": ClusterTemplates,
    "openstack:containerinfra/cluster:Cluster": Clusters,
    "openstack:containerinfra/nodeGroup:NodeGroup": NodeGroups,
}


class OpenstackProvider(ResourceProvider):
    """Magnum's three types, and the functions that look them up."""

    name = "openstack"
    # The SDK in use asks for its own version of the plugin; any other would be a warning in every run.
    version = importlib.metadata.version("pulumi-openstack")

    def __init__(self, engine: Engine) -> None:
        """Know no cloud yet."""
        super().__init__(engine)
        self._use({})

    def _use(self, config: Mapping[str, Any]) -> None:
        self.clouds = Clouds(config)
        self._handlers: dict[str, Handler] = {
            token: kind(self.clouds)  # type: ignore[misc]
            for token, kind in _TYPES.items()
        }

    async def check_config(self, olds: Properties, news: Properties) -> Checked:
        """Refuse what the stand-in cannot do, and settings that nobody knows."""
        unknown = [(name, "unknown setting") for name in news if name not in KNOWN and name[:2] != "__"]
        return Checked(news, [*failures(news), *unknown])

    async def diff_config(self, olds: Properties, news: Properties) -> Diffed:
        """Another way to the cloud replaces nothing, as with the official provider."""
        before, after = reveal(olds), reveal(news)
        changed = [
            key for key in sorted({*before, *after} - {"version"}) if before.get(key) != after.get(key)
        ]
        return Diffed({key: Change.UPDATE for key in changed}, diffs=tuple(changed), detailed=False)

    async def configure(self, config: Properties) -> None:
        """Take the settings; nobody is asked before the first resource or function."""
        self._use(config)

    def handler(self, token: str) -> Handler:
        """The handler of one of the three types."""
        if token not in self._handlers:
            raise PluginError(
                f"{token}: the stand-in of the openstack provider has {', '.join(sorted(_TYPES))}; "
                "install the official pulumi-resource-openstack plugin for others"
            )
        return self._handlers[token]

    async def invoke(self, token: str, args: Properties) -> Properties:
        """Look something up."""
        return await functions.invoke(self.clouds, token, args)
