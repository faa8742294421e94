"""The stand-in of pulumi-resource-aws: one table, no account, no network."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.provider.base import ResourceProvider
from gpuform.provider.handler import Change, CheckResult, DiffResult, Engine, Handler, Properties
from gpuform.provider.properties import UNKNOWN, reveal
from gpuform.provider.protocol import engine_pb2
from lab.offline.aws import eks, functions, network, services
from lab.offline.aws.outputs import Settings, partitions
from lab.offline.aws.resource import OfflineResource
from lab.offline.aws.row import ResourceRow

NOTICE = "gpuform: offline stand-in for pulumi-resource-aws: nothing is created at AWS"
CHARTS = "gpuform: offline: charts of NVIDIA, Karpenter and AWS are stand-ins generated on this machine"
ROWS: Mapping[str, ResourceRow] = {**network.ROWS, **eks.ROWS, **services.ROWS}


class OfflineAws(ResourceProvider):
    """Types and functions of the table; prints in every run that it is not AWS."""

    name, version = "aws", importlib.metadata.version("pulumi-aws")

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._settings = Settings()

    async def check_config(self, olds: Properties, news: Properties) -> CheckResult:
        region = reveal(news).get("region")
        if region is None or region is UNKNOWN or region in partitions():
            return CheckResult(news)
        return CheckResult(news, [("region", f"{region!r} is not an AWS region")])

    async def diff_config(self, olds: Properties, news: Properties) -> DiffResult:
        """Always an in-place update: each resource compares the region and default tags itself."""
        before, after = reveal(olds), reveal(news)
        keys = sorted({*before, *after} - {"version"})
        changed = {key: Change.UPDATE for key in keys if before.get(key) != after.get(key)}
        return DiffResult(changed, diffs=tuple(changed), detailed=False)

    async def configure(self, config: Properties) -> None:
        """Take region and default tags, which come as JSON, and print the notices."""
        settings = {key.removeprefix("aws:config:"): value for key, value in reveal(config).items()}
        tags = settings.get("defaultTags") or {}
        parsed = json.loads(tags) if isinstance(tags, str) else tags
        default_tags = parsed.get("tags") or {} if isinstance(parsed, dict) else {}
        self._settings = Settings(str(settings.get("region") or ""), default_tags)
        for line in (NOTICE, CHARTS):
            await self.engine.log(line, severity=engine_pb2.INFO)

    def schema(self) -> dict[str, Any]:
        """Names only: the SDK is Pulumi's own."""
        return {"name": self.name, "version": self.version, "resources": {token: {} for token in ROWS}}

    def handler(self, token: str) -> Handler:
        return OfflineResource(row(token), self._settings)

    async def invoke(self, token: str, args: Properties) -> Properties:
        return functions.answer(token, args, self._settings)


def row(token: str) -> ResourceRow:
    if token not in ROWS:
        known = ", ".join(sorted(name.rsplit(":", 1)[-1] for name in ROWS))
        raise OperationError(
            f"{token}: the offline stand-in of the aws provider does not know this type (it knows {known}); "
            "add a row to lab/offline/aws, or run with an account and the official plugin"
        )
    return ROWS[token]
