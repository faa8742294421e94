"""The stand-in of pulumi-resource-openstack: one table, no cloud, no network."""

from __future__ import annotations

import importlib.metadata

from gpuform.plugins.handler import Engine, Handler, Properties
from gpuform.plugins.offline.openstack import functions
from gpuform.plugins.offline.openstack.resource import OfflineResource
from gpuform.plugins.offline.openstack.table import ROWS, row
from gpuform.plugins.offline.standin import OfflineProvider

NOTICE = "gpuform: offline stand-in for pulumi-resource-openstack: nothing is created at OpenStack"
CHARTS = "gpuform: offline: charts that others publish are stand-ins made on this machine"
REGION = "RegionOne"
"""OpenStack's own default, where the environment names none."""


class OfflineOpenstack(OfflineProvider):
    """Magnum's types and lookups; says in every run that it is not OpenStack. Wants no credentials."""

    name, version = "openstack", importlib.metadata.version("pulumi-openstack")
    types, notices = ROWS, (NOTICE, CHARTS)

    def __init__(self, engine: Engine) -> None:
        """Not configured yet: the default region."""
        super().__init__(engine)
        self._region = REGION

    def take(self, config: Properties) -> None:
        """The region."""
        self._region = str(config.get("region") or REGION)

    def handler(self, token: str) -> Handler:
        """The type's row, as a handler."""
        return OfflineResource(row(token), self._region)

    async def invoke(self, token: str, args: Properties) -> Properties:
        """Answer a lookup."""
        return functions.answer(token, args, self._region)
