"""The few calls to the API server that the simulator makes, over one connection pool."""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import yaml

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
PAGE = 250  # Objects per page of a list; bounds the memory for parsing


class Gone(Exception):
    """The watch is too old; list again."""


class Api:
    """JSON over HTTPS with the client certificate of an embedded control plane's kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        """Raises KeyError or OSError if the kubeconfig is not usable."""
        self._http = httpx.AsyncClient(
            **connection(kubeconfig),
            timeout=httpx.Timeout(30, connect=5),
            limits=httpx.Limits(max_connections=32, max_keepalive_connections=16),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def pages(self, path: str, params: dict[str, str]) -> AsyncIterator[tuple[list[Json], str]]:
        """Pages of a list, each with the list's resource version."""
        continuation: dict[str, str] = {}
        while True:
            body = await self._json("GET", path, params={**params, "limit": str(PAGE), **continuation})
            yield body["items"], body["metadata"]["resourceVersion"]
            if not body["metadata"].get("continue"):
                return
            continuation = {"continue": body["metadata"]["continue"]}

    async def watch(self, path: str, params: dict[str, str], version: str) -> AsyncIterator[tuple[str, Json]]:
        """Events after ``version`` until the server ends the watch. Raises Gone, or httpx.HTTPError."""
        query = {**params, "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        timeout = httpx.Timeout(30, read=None)
        async with self._http.stream("GET", path, params=query, timeout=timeout) as response:
            if response.status_code == 410:
                raise Gone
            response.raise_for_status()
            async for line in response.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Gone
                yield event["type"], event["object"]

    async def patch(self, path: str, body: Json, kind: str = MERGE) -> Json:
        return await self._json("PATCH", path, content=json.dumps(body), headers={"Content-Type": kind})

    async def create(self, path: str, body: Json) -> Json:
        """Create an object; returns it. Raises httpx.HTTPStatusError, 409 when it exists."""
        return await self._json("POST", path, json=body)

    async def delete(self, path: str, body: Json) -> Json:
        return await self._json("DELETE", path, json=body)

    async def _json(self, method: str, path: str, **kwargs: Any) -> Json:
        response = await self._http.request(method, path, **kwargs)
        response.raise_for_status()
        body: Json = response.json()
        return body


def connection(kubeconfig: Path) -> Json:
    """Server and TLS context of a client of httpx. Raises KeyError or OSError."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    secure = cluster["server"].startswith("https://")
    return {"base_url": cluster["server"], "verify": _tls(cluster, user) if secure else False}


def _tls(cluster: Json, user: Json) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_decoded(cluster, "certificate-authority-data").decode())
    # The ssl module reads a key pair only from a file; in memory, it is gone even after a kill.
    with os.fdopen(os.memfd_create("client-key"), "wb") as file:
        file.write(_decoded(user, "client-certificate-data") + b"\n" + _decoded(user, "client-key-data"))
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


def _decoded(entry: Json, name: str) -> bytes:
    return base64.b64decode(entry[name])
