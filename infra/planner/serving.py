"""Demands that serve requests: a rate, a latency, and measured throughputs from which the slots follow."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field

from infra import strict_yaml
from infra.model.base.errors import InputError
from infra.model.base.fields import Flag, Model, Strict, matching, option, required
from infra.model.gpu.mig import is_plain
from infra.model.gpu.models import GPUS
from infra.planner import latency
from infra.planner.latency import WHOLE, Setting

COLUMNS = ("part", "batch", "processes", "throughput", "latency_ms")
_Amount = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class Serves(Model):
    """What a service must do, and what one pod of it does."""

    rate: _Amount = required("Requests per second, of all pods together.")
    latency_ms: _Amount = required(
        "Milliseconds within which a request must be answered. A request waits for one batch at most, and "
        "then for its own, so parts count with which a batch takes half of it."
    )
    measured: Annotated[Strict, matching(r"[^\0]{1,4096}", "a path", "name a csv")] = required(
        f"csv with the columns {', '.join(COLUMNS)}: a MIG profile or {WHOLE}; the size of a batch; "
        "processes of the pod; its requests per second in all; milliseconds of a batch."
    )
    predict: Flag = option(
        f"Predict MIG profiles that were not measured, from {latency.FEWEST} measurements of three or more.",
        False,
    )


def best_throughput(serves: Serves, folder: Path, name: str) -> Mapping[str, float]:
    """Requests per second of one pod by part (MIG profile or ``whole``), at its best setting.

    Raises InputError for a file without such a setting.
    """
    file = folder / serves.measured
    rows = list(_rows(file))
    known = {setting: (throughput, time) for setting, throughput, time in rows}
    if serves.predict:
        known = _predicted(rows, str(file)) | known
    best: dict[str, float] = {}
    for setting, (throughput, time) in known.items():
        if 2 * time <= serves.latency_ms:
            best[setting.part] = max(best.get(setting.part, 0.0), throughput)
    if not best:
        fastest = min(time for _, time in known.values())
        fact = f"{serves.latency_ms:g} ms is less than twice the fastest batch, {fastest:g} ms"
        raise InputError(f"{name}.serves.latency_ms", fact, "measure smaller batches, or allow more")
    return best


def _predicted(
    rows: Sequence[tuple[Setting, float, float]], subject: str
) -> dict[Setting, tuple[float, float]]:
    """Throughput, and time with a margin, of each measured batch and number of processes on every profile."""
    profiles = {
        profile.name
        for gpu in GPUS.values()
        for profile in (gpu.geometry.profiles if gpu.geometry else ())
        if is_plain(profile)
    }
    loads = sorted({(setting.batch, setting.processes) for setting, _, _ in rows})
    wanted = [Setting(part, *load) for part in sorted(profiles | {WHOLE}) for load in loads]
    # By throughput, which is measured more finely than milliseconds.
    times = [(one, one.batch * one.processes / throughput) for one, throughput, _ in rows]
    waits = median(row[2] / time for row, (_, time) in zip(rows, times, strict=True))
    found = latency.predicted(times, wanted, subject)
    return {
        one: (one.batch * one.processes / time, waits * time * latency.MARGIN)
        for one, time in zip(wanted, found, strict=True)
    }


def _rows(file: Path) -> Iterator[tuple[Setting, float, float]]:
    """Settings with requests per second and milliseconds."""
    rows = csv.DictReader(
        io.StringIO(strict_yaml.read_text(file, "name the csv relative to the file of demands"))
    )
    if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
        raise InputError(str(file), f"has no column {missing[0]}", f"give the columns {', '.join(COLUMNS)}")
    empty = True
    for row in rows:
        empty = False
        for name in COLUMNS[1:]:
            try:
                value = float(row[name])
            except (TypeError, ValueError):
                value = -1.0
            if not 0 < value < math.inf:
                path = f"{file}:{rows.line_num}: {name}"
                raise InputError(path, f"{row[name]!r} is not a number above 0", "correct it")
        part = row["part"]
        if part != WHOLE and not re.fullmatch(r"[1-9]g\.[1-9][0-9]*gb", part):
            path = f"{file}:{rows.line_num}: part"
            raise InputError(path, f"{part!r} is no MIG profile", f"name one as 1g.10gb, or {WHOLE}")
        batch, processes, throughput, time = (float(row[name]) for name in COLUMNS[1:])
        yield Setting(part, batch, processes), throughput, time
    if empty:
        raise InputError(str(file), "holds no measurement", "give one row for each part and batch")
