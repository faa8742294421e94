"""Which kinds the server knows, and under which path each of them lives."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from gpuform.plugins.kubernetes.client import ApiError, Client

_AGAIN_SECONDS = 1.0  # a kind that was missing may be there later: its CRD may be part of the same update


@dataclass(frozen=True)
class ResourceType:
    """One kind as the server serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The URL path of the collection, or of one object; a kind of the whole cluster has no namespace."""
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        if self.namespaced and namespace:
            root += f"/namespaces/{namespace}"
        return f"{root}/{self.plural}" + (f"/{name}" if name else "")


class Discovery:
    """The server's kinds, asked for once per group and version.

    A kind that is missing is asked for again, at most once a second, since a CRD may appear meanwhile.
    """

    def __init__(self, client: Client) -> None:
        """Ask through ``client``, with the first look-up."""
        self._client = client
        self._known: dict[str, dict[str, ResourceType]] = {}
        self._asked: dict[str, float] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def find(self, api_version: str, kind: str, fresh: bool = False) -> ResourceType | None:
        """The resource type, or ``None`` if the server does not serve it; `Unreachable` without a server.

        ``fresh`` asks the server even where the last answer is young.
        """
        found = self._known.get(api_version, {}).get(kind)
        if found:
            return found
        lock = self._locks.setdefault(api_version, asyncio.Lock())
        async with lock:
            asked = self._asked.get(api_version)
            if fresh or asked is None or time.monotonic() - asked > _AGAIN_SECONDS:
                self._known[api_version] = await self._ask(api_version)
                self._asked[api_version] = time.monotonic()
        return self._known.get(api_version, {}).get(kind)

    async def _ask(self, api_version: str) -> dict[str, ResourceType]:
        root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        try:
            answer = await self._client.get(root)
        except ApiError as error:
            if error.code == 404:
                return {}
            raise
        return {
            item["kind"]: ResourceType(api_version, item["kind"], item["name"], item["namespaced"])
            for item in answer.get("resources", ())
            if "/" not in item["name"]
        }
