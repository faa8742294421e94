"""Faults of simulated nodes, which ``gpuform simulate fault`` sets and clears; never of a real node."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from gpuform.checkout.errors import InputError
from lab.plane.gpu_health import NODES, annotations_of, answering, restart_plugin
from lab.simulator import faults, keys
from lab.simulator.api import Api
from lab.simulator.faults import Fault
from lab.simulator.world import model

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
