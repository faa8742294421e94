"""Demands that serve requests: a rate, a latency, and measured throughputs from which the slots follow."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from infra import strict_yaml
from infra.model.base.errors import InputError
from infra.model.base.fields import Model, Strict, matching, required

WHOLE = "whole"
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


def best_throughput(serves: Serves, folder: Path, name: str) -> Mapping[str, float]:
    """Requests per second of one pod by part (MIG profile or ``whole``), at the best measured setting.

    Raises InputError for a file without such a setting.
    """
    file = folder / serves.measured
    best: dict[str, float] = {}
    fastest = math.inf
    for part, throughput, latency in _rows(file):
        fastest = min(fastest, latency)
        if 2 * latency <= serves.latency_ms:
            best[part] = max(best.get(part, 0.0), throughput)
    if not best:
        fact = f"{serves.latency_ms:g} ms is less than twice the fastest batch, {fastest:g} ms"
        raise InputError(f"{name}.serves.latency_ms", fact, "measure smaller batches, or allow more")
    return best


def _rows(file: Path) -> Iterator[tuple[str, float, float]]:
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
        yield row["part"], float(row["throughput"]), float(row["latency_ms"])
    if empty:
        raise InputError(str(file), "holds no measurement", "give one row for each part and batch")
