"""Faults and health of simulated GPUs, changed by ``gpuform simulate``; a real node is never changed.

The command sets annotations on the node; the simulator's operands react to them as the real ones react to a
change of the hardware.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gpuform.checkout.errors import Failure, InputError
from lab.simulator import faults, keys
from lab.simulator.api import Api
from lab.simulator.faults import Fault
from lab.simulator.world import model

Json = dict[str, Any]
NODES = "/api/v1/nodes"
KEPT, MOST = 3600.0, 200
"""Seconds after which the next fault drops an XID that took no GPU away; maximum number of XIDs kept."""
SWITCHED = 8
"""GPUs of a board with NVSwitches, from Ampere on."""
SAID = {
    faults.EXPORTER_DOWN: "dcgm-exporter crash-loops",
    faults.FABRIC: "its fabric manager does not run: CUDA does not start, the validator crash-loops",
    faults.ECC: "its memory has double-bit errors, one a minute, each with XID 48",
    faults.GPU_LOST: "it has fallen off the bus: XID 79, and its series are gone",
    faults.THERMAL: "its cooling has failed: it is hot, and throttled",
    faults.POWER: "its power is limited to half: it is throttled",
    faults.NVLINK: "its NVLinks have errors",
    faults.ROW_REMAP: "a row of its memory could not be remapped",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line's request: exactly one of ``kinds``, ``xid``, ``clear``; ``gpu`` None: not given."""

    node: str
    gpu: int | None = None
    kinds: tuple[str, ...] = ()
    xid: int | None = None
    clear: bool = False


async def fault(kubeconfig: Path, asked: Asked, now: float | None = None) -> list[str]:
    """Set a fault on a simulated node, or clear its faults; returns lines that say what was done.

    Clearing a fault that made the device plugin give up a GPU deletes the plugin's pod: both come back.
    Raises InputError before anything is changed, and Failure if the cluster does not answer.
    """
    kind = _kind(asked)
    async with answering(kubeconfig) as api:
        notes = await annotations_of(api, asked.node, asked.gpu or 0)
        there = faults.read(notes.get(keys.FAULTS, "[]"))
        if asked.clear:
            return await _clear(api, asked, there)
        made = _made(asked, kind, notes, time.time() if now is None else now)
        return await _add(api, asked.node, there, made)


def _kind(asked: Asked) -> str:
    """The requested kind, "" to clear. Raises InputError for no kind, for two, and for an unknown XID."""
    kinds = [
        *asked.kinds,
        *([faults.XID] if asked.xid is not None else []),
        *(["clear"] if asked.clear else []),
    ]
    if len(kinds) != 1:
        path = " ".join(f"--{kind}" for kind in kinds) or "gpuform simulate fault"
        fact = "more than one at a time" if kinds else "no fault is given"
        choice = ", ".join(f"--{kind}" for kind in (f"{faults.XID} N", *faults.KINDS[1:], "clear"))
        raise InputError(path, fact, f"give one of {choice}")
    if asked.xid is not None and asked.xid not in faults.XIDS:
        known = ", ".join(map(str, sorted(faults.XIDS)))
        raise InputError("--xid", f"{asked.xid} is not an XID of a data-centre GPU", f"use one of {known}")
    if kinds[0] in faults.OF_NODE and asked.gpu is not None:
        raise InputError("--gpu", f"--{kinds[0]} breaks the node, not one of its GPUs", "leave --gpu out")
    return "" if asked.clear else kinds[0]


def _made(asked: Asked, kind: str, notes: dict[str, str], now: float) -> Fault:
    """Raises InputError if this GPU cannot have the fault."""
    if kind == faults.EXPORTER_DOWN:
        return Fault(kind, -1, now)
    count = int(notes.get(keys.GPU_COUNT, "1"))
    device = notes[keys.GPU_ID].lower().partition(":")[2]
    gpu = model(notes)
    if gpu is None:
        raise InputError("NODE", f"{asked.node} has an unknown GPU {device}", "name a node with a known one")
    if kind == faults.NVLINK and not gpu.nvlink:
        raise InputError("--nvlink", f"{gpu.product} has no NVLink", "name a node with NVLink")
    if kind == faults.FABRIC:
        if not gpu.nvlink or gpu.compute < (8, 0) or count < SWITCHED:
            fact = f"{count} x {gpu.product} have no NVSwitch, and need no fabric manager"
            raise InputError("--fabric-manager", fact, f"name a node with {SWITCHED} GPUs linked by switches")
        return Fault(kind, -1, now)
    if kind == faults.ROW_REMAP and gpu.compute < (8, 0):
        fact = f"{gpu.product} does not remap rows: only Ampere and later do"
        raise InputError("--row-remap", fact, "use --ecc, or name a node with a newer GPU")
    return Fault(kind, asked.gpu or 0, now, asked.xid or 0)


async def _add(api: Api, node: str, there: tuple[Fault, ...], made: Fault) -> list[str]:
    which = node if made.gpu < 0 else f"{node}: GPU {made.gpu}"
    if made.kind != faults.XID and any((f.kind, f.gpu) == (made.kind, made.gpu) for f in there):
        return [f"{which}: already has this fault"]
    others = [f for f in there if f.kind != faults.XID]
    events = [f for f in there if f.kind == faults.XID and (f.sickening or f.since > made.since - KEPT)]
    await _write(api, node, [*others, *events[-MOST:], made])
    return [f"{which}: {_says(made)}"]


def _says(made: Fault) -> str:
    if made.kind != faults.XID:
        return SAID[made.kind]
    fate = (
        "the device plugin removes the GPU from allocatable"
        if made.sickening
        else "the device plugin ignores it"
    )
    return f"XID {made.xid} ({faults.xid_name(made.xid)}): {fate}"


async def _clear(api: Api, asked: Asked, there: tuple[Fault, ...]) -> list[str]:
    gone = [f for f in there if asked.gpu is None or f.gpu == asked.gpu]
    which = asked.node if asked.gpu is None else f"{asked.node}: GPU {asked.gpu}"
    if not gone:
        return [f"{which}: has no fault"]
    await _write(api, asked.node, [f for f in there if f not in gone])
    said = [f"{which}: cleared {', '.join(sorted({f.kind for f in gone}))}"]
    return said + (await restart_plugin(api, asked.node) if any(f.sickening for f in gone) else [])


async def _write(api: Api, node: str, all_of_it: list[Fault]) -> None:
    value = faults.stored(all_of_it)
    await api.patch(f"{NODES}/{node}", {"metadata": {"annotations": {keys.FAULTS: value}}})


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
    plugins = {"fieldSelector": f"spec.nodeName={name}", "labelSelector": f"{keys.OPERAND}=device-plugin"}
    async for pods, _ in api.pages("/api/v1/pods", plugins):
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
    pages = [nodes async for nodes, _ in api.pages(NODES, {"fieldSelector": f"metadata.name={name}"})]
    if not any(pages):
        raise InputError("NODE", f"there is no node {name}", "`kubectl get nodes` lists them")
    annotations: dict[str, str] = pages[0][0]["metadata"].get("annotations") or {}
    if keys.GPU_ID not in annotations:
        raise InputError("NODE", f"{name} has no simulated GPU", "name a node that has one")
    count = int(annotations.get(keys.GPU_COUNT, "1"))
    if not 0 <= gpu < count:
        number = f"use a number from 0 to {count - 1}" if count > 1 else "use 0, or leave --gpu out"
        raise InputError("--gpu", f"{name} has no GPU {gpu}", number)
    return annotations
