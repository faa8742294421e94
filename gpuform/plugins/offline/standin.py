"""What the stand-ins of two clouds' providers have in common: a table, no account, no network."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from gpuform.plugins.base import ResourceProvider
from gpuform.plugins.handler import Change, Diffed, Properties
from gpuform.plugins.properties import reveal
from gpuform.plugins.protocol import engine_pb2


class OfflineProvider(ResourceProvider):
    """Has the types in ``types``; says ``notices`` in every run."""

    types: ClassVar[Collection[str]]
    notices: ClassVar[tuple[str, ...]]

    def take(self, config: Properties) -> None:
        """Keep what is needed of the configuration, whose values are plain."""
        raise NotImplementedError

    async def diff_config(self, olds: Properties, news: Properties) -> Diffed:
        """Each resource looks itself at what the provider adds; the provider is changed in place."""
        before, after = reveal(olds), reveal(news)
        keys = sorted({*before, *after} - {"version"})
        changed = {key: Change.UPDATE for key in keys if before.get(key) != after.get(key)}
        return Diffed(changed, diffs=tuple(changed), detailed=False)

    async def configure(self, config: Properties) -> None:
        """Take the configuration; say what this is."""
        self.take({key.removeprefix(f"{self.name}:config:"): value for key, value in reveal(config).items()})
        for line in self.notices:
            await self.engine.log(line, severity=engine_pb2.INFO)

    def schema(self) -> dict[str, Any]:
        """Names only: the SDK is Pulumi's own."""
        return {"name": self.name, "version": self.version, "resources": {token: {} for token in self.types}}
