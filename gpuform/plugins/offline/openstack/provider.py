"""The stand-in of pulumi-resource-openstack: one table, no cloud, no network."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from pulumi.runtime.proto import engine_pb2

from gpuform.plugins.base import ResourceProvider
from gpuform.plugins.handler import Change, Diffed, Engine, Handler, Properties
from gpuform.plugins.offline.openstack import functions
from gpuform.plugins.offline.openstack.resource import OfflineResource
from gpuform.plugins.offline.openstack.table import ROWS, row
from gpuform.plugins.properties import reveal

NOTICE = "gpuform: offline stand-in for pulumi-resource-openstack: nothing is created at OpenStack"
CHARTS = "gpuform: offline: charts that others publish are stand-ins made on this machine"
REGION = "RegionOne"
"""OpenStack's own default, where the environment names none."""


class OfflineOpenstack(ResourceProvider):
    """Magnum's types and lookups; says in every run that it is not OpenStack. Wants no credentials."""

    name, version = "openstack", importlib.metadata.version("pulumi-openstack")

    def __init__(self, engine: Engine) -> None:
        """Not configured yet: the default region."""
        super().__init__(engine)
        self._region = REGION

    async def diff_config(self, olds: Properties, news: Properties) -> Diffed:
        """The provider is changed in place."""
        before, after = reveal(olds), reveal(news)
        keys = sorted({*before, *after} - {"version"})
        changed = {key: Change.UPDATE for key in keys if before.get(key) != after.get(key)}
        return Diffed(changed, diffs=tuple(changed), detailed=False)

    async def configure(self, config: Properties) -> None:
        """Take the region; say what this is."""
        plain = {key.removeprefix("openstack:config:"): value for key, value in reveal(config).items()}
        self._region = str(plain.get("region") or REGION)
        for line in (NOTICE, CHARTS):
            await self.engine.log(line, severity=engine_pb2.INFO)

    def handler(self, token: str) -> Handler:
        """The type's row, as a handler."""
        return OfflineResource(row(token), self._region)

    async def invoke(self, token: str, args: Properties) -> Properties:
        """Answer a lookup."""
        return functions.answer(token, args, self._region)

    def schema(self) -> dict[str, Any]:
        """Names only: the SDK is Pulumi's own."""
        return {"name": self.name, "version": self.version, "resources": {token: {} for token in ROWS}}
