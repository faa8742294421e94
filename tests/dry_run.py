"""What an API server says to one object after another, without storing any, and without kubectl.

kubectl reads the schemas of all kinds at each start: half a second, where a request takes a few milliseconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuform.kubernetes.client import APPLY, ApiError, Client
from gpuform.kubernetes.kubeconfig import load_access

STRICT = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "kubectl"}


class DryRun:
    """`apply` and `create` return the server's refusal or its warnings: empty if it takes the object."""

    def __init__(self, kubeconfig: Path, runner: asyncio.Runner) -> None:
        self._client, self._run = Client(load_access(kubeconfig)), runner.run
        self._kinds: dict[str, list[dict[str, Any]]] = {}

    def apply(self, item: dict[str, Any]) -> str:
        """Server-side apply, which takes fields over from others."""
        path = f"{self._path(item)}/{item['metadata']['name']}"
        return self._send("PATCH", path, item, {"force": "true"}, APPLY)

    def create(self, item: dict[str, Any]) -> str:
        return self._send("POST", self._path(item), item, {}, "application/json")

    def stored(self, item: dict[str, Any]) -> dict[str, Any]:
        """The object as `create` would store it; raises ApiError for a refusal."""
        path, kind = self._path(item), "application/json"
        sent = self._client.request("POST", path, params=STRICT, body=item, content_type=kind, retry=False)
        found: dict[str, Any] = self._run(sent).json()
        return found

    def close(self) -> None:
        self._run(self._client.close())

    def _path(self, item: dict[str, Any]) -> str:
        version, namespace = item["apiVersion"], item["metadata"].get("namespace")
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self._kinds:
            self._kinds[version] = self._run(self._client.get(base))["resources"]
        named = [kind["name"] for kind in self._kinds[version] if kind["kind"] == item["kind"]]
        (plural,) = [name for name in named if "/" not in name]
        return f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"

    def _send(self, verb: str, path: str, item: dict[str, Any], params: dict[str, str], kind: str) -> str:
        sent = self._client.request(
            verb, path, params={**STRICT, **params}, body=item, content_type=kind, retry=False
        )
        try:
            warnings = self._run(sent).headers.get_list("warning")
        except ApiError as error:
            return error.message
        return "\n".join(re.sub(r'^299 - "(.*)"$', r"Warning: \1", text) for text in warnings)


@contextmanager
def dry_run(kubeconfig: Path) -> Iterator[DryRun]:
    with asyncio.Runner() as runner:
        made = DryRun(kubeconfig, runner)
        yield made
        made.close()
