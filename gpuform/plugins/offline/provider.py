"""The stand-in of pulumi-resource-aws: one table, no account, no network."""

from __future__ import annotations

import importlib.metadata
import json

from gpuform.plugins.handler import Checked, Engine, Handler, Properties
from gpuform.plugins.offline import functions
from gpuform.plugins.offline.outputs import Settings, partitions
from gpuform.plugins.offline.resource import OfflineResource
from gpuform.plugins.offline.standin import OfflineProvider
from gpuform.plugins.offline.table import ROWS, row
from gpuform.plugins.properties import UNKNOWN, reveal

NOTICE = "gpuform: offline stand-in for pulumi-resource-aws: nothing is created at AWS"
CHARTS = "gpuform: offline: charts of NVIDIA, Karpenter and AWS are stand-ins made on this machine"


class OfflineAws(OfflineProvider):
    """Types and functions of the table; says in every run that it is not AWS."""

    name, version = "aws", importlib.metadata.version("pulumi-aws")
    types, notices = ROWS, (NOTICE, CHARTS)

    def __init__(self, engine: Engine) -> None:
        """Not configured yet: no region."""
        super().__init__(engine)
        self._settings = Settings()

    async def check_config(self, olds: Properties, news: Properties) -> Checked:
        """Refuse a region that AWS does not have."""
        region = reveal(news).get("region")
        if region is None or region is UNKNOWN or region in partitions():
            return Checked(news)
        return Checked(news, [("region", f"{region!r} is no region of AWS")])

    def take(self, config: Properties) -> None:
        """Region and default tags, which come as JSON."""
        tags = config.get("defaultTags") or {}
        parsed = json.loads(tags) if isinstance(tags, str) else tags
        default_tags = parsed.get("tags") or {} if isinstance(parsed, dict) else {}
        self._settings = Settings(str(config.get("region") or ""), default_tags)

    def handler(self, token: str) -> Handler:
        """The type's row, as a handler."""
        return OfflineResource(row(token), self._settings)

    async def invoke(self, token: str, args: Properties) -> Properties:
        """Answer a function that needs no account."""
        return functions.answer(token, args, self._settings)
