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
from lab.simulator.objects import operand_of
from lab.simulator.world import gpu_model

Json = dict[str, Any]
NODES = "/api/v1/nodes"
XID_RETENTION_S, MAX_XIDS = 3600.0, 200
"""Seconds after which the next fault drops an XID that took no GPU away; maximum number of XIDs kept."""
NVSWITCH_GPUS = 8
"""GPUs of a board with NVSwitches, from Ampere on."""
DESCRIPTIONS = {
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
class FaultRequest:
    """The command line's request: exactly one of ``kinds``, ``xid``, ``clear``; ``gpu`` None: not given."""

    node: str
    gpu: int | None = None
    kinds: tuple[str, ...] = ()
    xid: int | None = None
    clear: bool = False


async def change_fault(kubeconfig: Path, request: FaultRequest, now: float | None = None) -> list[str]:
    """Set a fault on a simulated node, or clear its faults; returns lines that say what was done.

    Clearing a fault that made the device plugin give up a GPU deletes the plugin's pod: both come back.
    Raises InputError before anything is changed, and Failure if the cluster does not answer.
    """
    kind = _requested_kind(request)
    async with cluster_api(kubeconfig) as api:
        annotations = await annotations_of(api, request.node, request.gpu or 0)
        existing = faults.parse(annotations.get(keys.FAULTS, "[]"))
        if request.clear:
            return await _clear(api, request, existing)
        new = _new_fault(request, kind, annotations, time.time() if now is None else now)
        return await _add(api, request.node, existing, new)


def _requested_kind(request: FaultRequest) -> str:
    """The requested kind, "" to clear. Raises InputError for no kind, for two, and for an unknown XID."""
    kinds = [*request.kinds, *[faults.XID] * (request.xid is not None), *["clear"] * request.clear]
    if len(kinds) != 1:
        path = " ".join(f"--{kind}" for kind in kinds) or "gpuform simulate fault"
        fact = "more than one at a time" if kinds else "no fault is given"
        choice = ", ".join(f"--{kind}" for kind in (f"{faults.XID} N", *faults.KINDS[1:], "clear"))
        raise InputError(path, fact, f"give one of {choice}")
    if request.xid is not None and request.xid not in faults.XIDS:
        known = ", ".join(map(str, sorted(faults.XIDS)))
        raise InputError("--xid", f"{request.xid} is not an XID of a data-centre GPU", f"use one of {known}")
    if kinds[0] in faults.NODE_KINDS and request.gpu is not None:
        raise InputError("--gpu", f"--{kinds[0]} breaks the node, not one of its GPUs", "leave --gpu out")
    return "" if request.clear else kinds[0]


def _new_fault(request: FaultRequest, kind: str, annotations: dict[str, str], now: float) -> Fault:
    """Raises InputError if this GPU cannot have the fault."""
    if kind == faults.EXPORTER_DOWN:
        return Fault(kind, -1, now)
    count = int(annotations.get(keys.GPU_COUNT, "1"))
    device = annotations[keys.GPU_ID].lower().partition(":")[2]
    gpu = gpu_model(annotations)
    if gpu is None:
        raise InputError(
            "NODE", f"{request.node} has an unknown GPU {device}", "name a node with a known one"
        )
    if kind == faults.NVLINK and not gpu.nvlink:
        raise InputError("--nvlink", f"{gpu.product} has no NVLink", "name a node with NVLink")
    if kind == faults.FABRIC:
        if not gpu.nvlink or gpu.compute < (8, 0) or count < NVSWITCH_GPUS:
            fact = f"{count} x {gpu.product} have no NVSwitch, and need no fabric manager"
            remedy = f"name a node with {NVSWITCH_GPUS} GPUs linked by switches"
            raise InputError("--fabric-manager", fact, remedy)
        return Fault(kind, -1, now)
    if kind == faults.ROW_REMAP and gpu.compute < (8, 0):
        fact = f"{gpu.product} does not remap rows: only Ampere and later do"
        raise InputError("--row-remap", fact, "use --ecc, or name a node with a newer GPU")
    return Fault(kind, request.gpu or 0, now, request.xid or 0)


async def _add(api: Api, node: str, existing: tuple[Fault, ...], new: Fault) -> list[str]:
    subject = node if new.gpu < 0 else f"{node}: GPU {new.gpu}"
    if new.kind != faults.XID and any((fault.kind, fault.gpu) == (new.kind, new.gpu) for fault in existing):
        return [f"{subject}: already has this fault"]
    others = [fault for fault in existing if fault.kind != faults.XID]
    events, oldest = [fault for fault in existing if fault.kind == faults.XID], new.since - XID_RETENTION_S
    events = [fault for fault in events if fault.is_unhealthy or fault.since > oldest]
    await _write(api, node, [*others, *events[-MAX_XIDS:], new])
    return [f"{subject}: {_describe(new)}"]


def _describe(new: Fault) -> str:
    if new.kind != faults.XID:
        return DESCRIPTIONS[new.kind]
    consequence = (
        "the device plugin removes the GPU from allocatable" + ", and its series are gone" * new.is_lost
        if new.is_unhealthy
        else "the device plugin ignores it"
    )
    return f"XID {new.xid} ({faults.xid_name(new.xid)}): {consequence}"


async def _clear(api: Api, request: FaultRequest, existing: tuple[Fault, ...]) -> list[str]:
    cleared = [fault for fault in existing if request.gpu is None or fault.gpu == request.gpu]
    subject = request.node if request.gpu is None else f"{request.node}: GPU {request.gpu}"
    if not cleared:
        return [f"{subject}: has no fault"]
    await _write(api, request.node, [fault for fault in existing if fault not in cleared])
    lines = [f"{subject}: cleared {', '.join(sorted({fault.kind for fault in cleared}))}"]
    is_given_up = any(fault.is_unhealthy for fault in cleared)
    return [*lines, *(await restart_plugin(api, request.node) if is_given_up else ())]


async def _write(api: Api, node: str, all_faults: list[Fault]) -> None:
    value = faults.render(all_faults)
    await api.patch(f"{NODES}/{node}", {"metadata": {"annotations": {keys.FAULTS: value}}})


async def set_health(kubeconfig: Path, name: str, gpu: int, ok: bool) -> list[str]:
    """Mark one GPU of a simulated node unhealthy, or healthy again; returns lines that say what was done.

    The device plugin never reports a device as healthy again while it runs, so for ``ok`` its pod is deleted,
    and comes back. Raises InputError for a node or GPU that does not exist or is not simulated, and Failure
    if the cluster does not answer.
    """
    async with cluster_api(kubeconfig) as api:
        annotations = await annotations_of(api, name, gpu)
        unhealthy = {word.strip() for word in annotations.get(keys.UNHEALTHY, "").split(",") if word.strip()}
        new = unhealthy - {str(gpu)} if ok else unhealthy | {str(gpu)}
        if new == unhealthy:
            return [f"{name}: GPU {gpu} is already {'healthy' if ok else 'unhealthy'}"]
        value = ",".join(sorted(new)) or None
        await api.patch(f"{NODES}/{name}", {"metadata": {"annotations": {keys.UNHEALTHY: value}}})
        if ok:
            return [f"{name}: GPU {gpu} is healthy", *await restart_plugin(api, name)]
    return [f"{name}: GPU {gpu} is unhealthy: its devices stay in the capacity, and are not allocatable"]


@asynccontextmanager
async def cluster_api(kubeconfig: Path) -> AsyncIterator[Api]:
    """Raises Failure if the cluster does not answer."""
    api = Api(kubeconfig)
    try:
        yield api
    except httpx.HTTPError as error:
        fact = f"does not answer: {error or type(error).__name__}"
        raise Failure("the embedded control plane", fact, "see `gpuform local status`") from error
    finally:
        await api.close()


async def restart_plugin(api: Api, name: str) -> list[str]:
    """Delete a node's device plugin pod: the plugin never reports a device as healthy again by itself."""
    lines: list[str] = []
    async for pods, _ in api.pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"}):
        for pod in pods:
            meta = pod["metadata"]
            if operand_of(meta) != "device-plugin":
                continue
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            await api.delete(path, {"preconditions": {"uid": meta["uid"]}})
            reason = "since it never reports a GPU as healthy again"
            lines.append(f"{meta['namespace']}/{meta['name']}: is restarted, {reason}")
    return lines


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
