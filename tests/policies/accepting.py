"""A provider that accepts everything, so that a resource reaches the analyzer unchanged.

python -m tests.policies.accepting NAME [engine's address]
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from gpuform.provider.base import ResourceProvider, serve_provider
from gpuform.provider.handler import Call, CheckResult, DiffResult, Handler, Properties


class AcceptingHandler:
    """A resource type without rules."""

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return CheckResult(news)

    async def diff(self, call: Call, *_: Any) -> DiffResult:
        return DiffResult(changes=False)

    async def create(self, call: Call, inputs: Properties) -> tuple[str, Properties]:
        return "" if call.preview else call.name, inputs


class AcceptingProvider(ResourceProvider):
    name, version = sys.argv[1], "1.0.0"

    def handler(self, token: str) -> Handler:
        return AcceptingHandler()  # type: ignore[return-value]

    def schema(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version}


if __name__ == "__main__":
    asyncio.run(serve_provider(AcceptingProvider))
