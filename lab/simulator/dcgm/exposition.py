"""The text that an exporter answers with: Prometheus' exposition format 0.0.4, as dcgm-exporter writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from lab.simulator import faults
from lab.simulator.dcgm.fields import CLOCK_EVENTS, EXPORTER, HEALTH, XID, XID_COUNT, Counter
from lab.simulator.dcgm.rows import Row, static, value
from lab.simulator.dcgm.watch import WINDOW_MS
from lab.simulator.world import World

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SAMPLE = 30.0
"""Seconds between two samples of the exporter's fields (``DCGM_EXPORTER_INTERVAL``)."""
_FLOATS = ("DCGM_FI_PROF_", "DCGM_FI_DEV_POWER_USAGE")
_CLOCKS = {
    faults.THERMAL: ("hw_slowdown", "hw_thermal"),
    faults.POWER: ("hw_slowdown", "hw_power_brake"),
}
_WATCHES = ["PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"]
_INCIDENTS = {
    faults.ECC: ("MEM", 20, "DCGM_FR_VOLATILE_DBE_DETECTED"),
    faults.ROW_REMAP: ("MEM", 20, "DCGM_FR_ROW_REMAP_FAILURE"),
    faults.NVLINK: ("NVLINK", 10, "DCGM_FR_NVLINK_ERROR_THRESHOLD"),
    faults.THERMAL: ("THERMAL", 10, "DCGM_FR_CLOCK_THROTTLE_THERMAL"),
    faults.POWER: ("POWER", 10, "DCGM_FR_CLOCK_THROTTLE_POWER"),
    faults.GPU_LOST: ("ALL", 20, "DCGM_FR_FALLEN_OFF_BUS"),
}
"""DCGM's health watch, its result (10 warns, 20 fails) and its error, by kind of fault."""


def text(world: World, counters: Sequence[Counter], rows: Sequence[Row], moment: float) -> str:
    """The whole answer; a counter without a value in any row is left out."""
    labels = static(world, [counter.name for counter in counters if counter.kind == "label"])
    heads = [_written(row.labels | labels | row.pod) for row in rows]
    lines: list[str] = []
    for counter in counters:
        if counter.kind == "label":
            continue
        found = list(_samples(counter, rows, heads, moment))
        if found:
            lines += [
                f"# HELP {counter.name} {counter.text}",
                f"# TYPE {counter.name} {counter.kind}",
                *found,
            ]
    return "\n".join(lines) + "\n" if lines else ""


def _samples(counter: Counter, rows: Sequence[Row], heads: Sequence[str], moment: float) -> Iterator[str]:
    name = counter.name
    if name in EXPORTER:
        for row, head in zip(rows, heads, strict=True):
            for more, count in _counted(name, row, moment):
                yield f"{name}{{{head}{_tail(more)}}} {count}"
        return
    decimals = name.startswith(_FLOATS) and not name.endswith("_BYTES")
    for row, head in zip(rows, heads, strict=True):
        found = value(row, name)
        if found is None:
            continue
        tail = _tail({"err_code": str(row.xid[0]), "err_msg": row.xid[1]}) if name == XID else ""
        number = f"{found:.6f}" if decimals else str(int(found))
        yield f"{name}{{{head}{tail}}} {number}"


def _counted(name: str, row: Row, moment: float) -> Iterator[tuple[dict[str, str], int]]:
    window = {"window_size_in_ms": str(WINDOW_MS)}
    if name == XID_COUNT:
        for xid, count in sorted(row.xids.items()):
            yield {**window, "xid": str(xid)}, count
        if not row.xids:
            yield window, 0
    elif name == CLOCK_EVENTS:
        events = dict(_clock_events(row, moment))
        for event, count in sorted(events.items()):
            yield {**window, "clock_event": event}, count
        if not events:
            yield window, 0
    elif name == HEALTH and not row.instance:
        wrong = {incident[0]: incident for kind, incident in _INCIDENTS.items() if kind in row.broken}
        for watch in _WATCHES:
            _, result, error = wrong.get(watch, (watch, 0, "DCGM_FR_OK"))
            yield {"health_watch": watch, "health_error_code": error}, result


def _clock_events(row: Row, moment: float) -> Iterator[tuple[str, int]]:
    """Number of the window's samples with a reduced clock, by the reasons that hold now."""
    most = round(WINDOW_MS / 1000 / SAMPLE)
    if row.idle:
        yield "gpu_idle", most
    for kind, events in _CLOCKS.items():
        fault = row.broken.get(kind)
        if fault:
            seen = math.ceil((moment - fault.since) / SAMPLE)
            for event in events:
                yield event, min(most, max(1, seen))


def _written(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())


def _tail(labels: dict[str, str]) -> str:
    return "".join(f',{name}="{_escaped(text)}"' for name, text in sorted(labels.items()))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
