"""Health of simulated GPUs, changed by a command; a real node is never changed.

The command sets annotations on the node; the simulator's operands react to them as the real ones react to a
change of the hardware.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from gpuform.checkout.errors import Failure, InputError
from lab.simulator import keys
from lab.simulator.api import Api

Json = dict[str, Any]
NODES = "/api/v1/nodes"


async def health(kubeconfig: Path, node: str, gpu: int, ok: bool) -> list[str]:
    """Mark one GPU of a simulated node unhealthy, or healthy again; returns lines that say what was done.

    The device plugin never reports a device as healthy again while it runs, so for ``ok`` its pod is deleted,
    and comes back. Raises InputError for a node or GPU that does not exist or is not simulated, and Failure
    if the cluster does not answer.
    """
    async with answering(kubeconfig) as api:
        return await _health(api, node, gpu, ok)


@asynccontextmanager
async def answering(kubeconfig: Path) -> AsyncIterator[Api]:
    """Raises Failure if the cluster does not answer."""
    if not kubeconfig.is_file():
        raise Failure("the embedded control plane", "has never been started", "run `gpuform local start`")
    api = Api(kubeconfig)
    try:
        yield api
    except httpx.HTTPError as error:
        fact = f"does not answer: {error or type(error).__name__}"
        raise Failure("the embedded control plane", fact, "see `gpuform local status`") from error
    finally:
        await api.close()


async def _health(api: Api, name: str, gpu: int, ok: bool) -> list[str]:
    annotations = await annotations_of(api, name, gpu)
    sick = {word.strip() for word in annotations.get(keys.UNHEALTHY, "").split(",") if word.strip()}
    wanted = sick - {str(gpu)} if ok else sick | {str(gpu)}
    if wanted == sick:
        return [f"{name}: GPU {gpu} is already {'healthy' if ok else 'unhealthy'}"]
    value = ",".join(sorted(wanted)) or None
    await api.patch(f"{NODES}/{name}", {"metadata": {"annotations": {keys.UNHEALTHY: value}}})
    if not ok:
        return [f"{name}: GPU {gpu} is unhealthy: its devices stay in the capacity, and are not allocatable"]
    return [f"{name}: GPU {gpu} is healthy", *await restart_plugin(api, name)]


async def restart_plugin(api: Api, name: str) -> list[str]:
    """Delete a node's device plugin pod: the plugin never reports a device as healthy again by itself."""
    said: list[str] = []
    async for pods, _ in api.pages("/api/v1/pods", _plugins(name)):
        for pod in pods:
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            await api.delete(path, {"preconditions": {"uid": meta["uid"]}})
            said.append(
                f"{meta['namespace']}/{meta['name']}: is restarted, "
                "since it never reports a GPU as healthy again"
            )
    return said


async def annotations_of(api: Api, name: str, gpu: int) -> dict[str, str]:
    """Annotations of a simulated node. Raises InputError if the node or this GPU does not exist."""
    return _annotations(await _one(api, name), name, gpu)


async def _one(api: Api, name: str) -> Json | None:
    async for nodes, _ in api.pages(NODES, {"fieldSelector": f"metadata.name={name}"}):
        for node in nodes:
            return node
    return None


def _annotations(node: Json | None, name: str, gpu: int) -> dict[str, str]:
    if node is None:
        raise InputError("NODE", f"there is no node {name}", "`kubectl get nodes` lists them")
    annotations: dict[str, str] = node["metadata"].get("annotations") or {}
    if keys.GPU_ID not in annotations:
        raise InputError("NODE", f"{name} has no simulated GPU", "name a node that has one")
    count = int(annotations.get(keys.GPU_COUNT, "1"))
    if not 0 <= gpu < count:
        number = f"use a number from 0 to {count - 1}" if count > 1 else "use 0, or leave --gpu out"
        raise InputError("--gpu", f"{name} has no GPU {gpu}", number)
    return annotations


def _plugins(node: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={node}", "labelSelector": f"{keys.OPERAND}=device-plugin"}
