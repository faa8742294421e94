"""What of a release is not ready, in words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.kubernetes.client import Client
from gpuform.plugins.kubernetes.discovery import Discovery
from gpuform.plugins.kubernetes.readiness import readiness, worst
from gpuform.plugins.kubernetes.release_check import objects

_SHOWN = 10  # a release has hundreds of objects; the first few say what is wrong


async def not_ready(client: Client, discovery: Discovery, manifest: str, namespace: str) -> list[str]:
    """One sentence for each object of ``manifest`` that is missing or not ready, ten at most."""
    found = await asyncio.gather(*(_look(client, discovery, item, namespace) for item in objects(manifest)))
    reasons = [item for item in found if item]
    more = len(reasons) - _SHOWN
    return reasons[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])


async def _look(client: Client, discovery: Discovery, item: Mapping[str, Any], namespace: str) -> str | None:
    kind = await discovery.find(str(item.get("apiVersion")), str(item["kind"]))
    if kind is None:
        return None
    name, namespace = str(item["metadata"].get("name")), item["metadata"].get("namespace") or namespace
    live = await client.find(kind.path(namespace, name))
    if live is None:
        return f"{item['kind']} {name} is not there"
    state = readiness({"apiVersion": item["apiVersion"], "kind": item["kind"], **live})
    if state.ready:
        return None
    selector = ((live.get("spec") or {}).get("selector") or {}).get("matchLabels")
    pods = ""
    if selector:
        labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        found = await client.get(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": labels})
        pods = worst(found["items"])
    return f"{item['kind']} {name}: {state.missing}" + (f" ({pods})" if pods else "")
