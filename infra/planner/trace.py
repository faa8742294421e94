"""Traces of jobs and lists of nodes, read from csv.

Two formats, told apart by their header:

- ours: ``arrival,duration,name,gpus,cpu,memory`` and optionally ``models``: seconds, seconds, text, GPUs (a
  whole number, or a share of one GPU below 1), cores, GiB, and the GPU models that the job accepts, joined
  by ``|``
- Alibaba's openb: ``name,cpu_milli,memory_mib,num_gpu,gpu_milli`` and optionally ``gpu_spec``,
  ``creation_time`` and ``deletion_time`` [alibaba/clusterdata, cluster-trace-gpu-v2023/README.md]
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra import strict_yaml
from infra.model.base.errors import InputError, Place

MILLI = 1000
"""Parts of a GPU that a share is counted in, as openb does."""
_MIB = 1024
_MAX_BYTES = 2**30
"""Of a trace; openb's have half a MiB for 8000 jobs."""
_OURS = ("arrival", "duration", "name", "gpus", "cpu", "memory")
_OPENB = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


@dataclass(frozen=True)
class Shape:
    """What a job needs of one node: ``gpus`` GPUs with ``milli`` thousandths of each, cores, memory.

    ``gpus`` above 1 and ``milli`` below 1000 do not occur together. No ``models``: any GPU serves.
    """

    gpus: int
    milli: int
    cpu_milli: int
    memory_mib: int
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        return self.gpus * self.milli


@dataclass(frozen=True)
class Job:
    """``line`` is that of the file. A job of a list without times has arrival 0 and ends never (None)."""

    name: str
    shape: Shape
    line: int
    arrival_s: float = 0.0
    duration_s: float | None = None


@dataclass(frozen=True)
class NodeSize:
    """A node, and the devices that it offers, each a part of a GPU in thousandths.

    ``divisible``: pods may take any part of a device; else a pod takes all of it, as of a slot. ``models``:
    those that its GPUs may be, of which a job must accept each. ``gpu_only``: a taint keeps other jobs away.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    devices: tuple[int, ...]
    models: tuple[str, ...]
    divisible: bool = False
    gpu_only: bool = False


def read_nodes(path: Path) -> list[NodeSize]:
    """The nodes of openb's node list; their GPUs are divisible."""
    return [
        NodeSize(
            row.text("sn"),
            row.count("cpu_milli"),
            row.count("memory_mib"),
            (MILLI,) * row.count("gpu"),
            (row.text("model"),),
            divisible=True,
        )
        for row in _rows(path, _NODES)
    ]


def read_jobs(path: Path) -> list[Job]:
    """The jobs of a trace in the file's order. Raises InputError that names the file and the lines."""
    jobs, errors = list[Job](), list[InputError]()
    for row in _rows(path, _OURS, _OPENB):
        try:
            jobs.append(row.job())
        except InputError as error:
            errors.append(error)
    raise_together(errors)
    return jobs


def raise_together(errors: Sequence[InputError]) -> None:
    """Raise the errors, if any, as one: 10 at most."""
    if errors:
        first, *others = errors[:10]
        raise InputError(first.path, first.fact, first.remedy, first.place, others)


@dataclass(frozen=True)
class _Row:
    path: Path
    line: int
    cells: Mapping[str, str]

    def error(self, key: str, fact: str, remedy: str) -> InputError:
        return InputError(key, fact, remedy, Place(str(self.path), self.line, 1))

    def text(self, key: str) -> str:
        value = (self.cells.get(key) or "").strip()
        if not value:
            raise self.error(key, "is empty", "give each row a value")
        return value

    def number(self, key: str) -> float:
        text = self.text(key)
        try:
            value = float(text)
        except ValueError:
            raise self.error(key, f"{text!r} is not a number", "write a number of 0 or more") from None
        if not (0 <= value < math.inf):
            raise self.error(key, f"{text} is out of range", "write a number of 0 or more")
        return value

    def count(self, key: str) -> int:
        value = self.number(key)
        if value != int(value):
            raise self.error(key, f"{value:g} is not a whole number", "write a whole number")
        return int(value)

    def models(self, key: str) -> tuple[str, ...]:
        return tuple(sorted(filter(None, (part.strip() for part in (self.cells.get(key) or "").split("|")))))

    def job(self) -> Job:
        if None in self.cells:
            raise self.error("row", "has more cells than the header", "quote a cell that has a comma")
        return self._ours() if "gpus" in self.cells else self._openb()

    def _ours(self) -> Job:
        gpus = self.number("gpus")
        if gpus > 1 and gpus != int(gpus):
            raise self.error("gpus", f"{gpus:g} is neither a share nor a whole number", "write 0.5, 1 or 2")
        milli = round(gpus * MILLI) if gpus < 1 else MILLI
        if gpus and not milli:
            raise self.error("gpus", f"{gpus:g} is less than a thousandth of a GPU", "write 0.001 or more")
        shape = Shape(
            math.ceil(gpus),
            milli if gpus else 0,
            math.ceil(self.number("cpu") * 1000),
            math.ceil(self.number("memory") * _MIB),
            self.models("models"),
        )
        return Job(self.text("name"), shape, self.line, self.number("arrival"), self.number("duration"))

    def _openb(self) -> Job:
        gpus, milli = self.count("num_gpu"), self.count("gpu_milli")
        if milli > MILLI or (gpus > 1 and milli != MILLI) or bool(gpus) != bool(milli):
            fact = f"{milli} of {gpus} GPUs"
            raise self.error("gpu_milli", fact, "write 1 to 1000 for one GPU, 1000 for several, 0 for none")
        shape = Shape(
            gpus,
            milli,
            int(self.number("cpu_milli")),
            int(self.number("memory_mib")),
            self.models("gpu_spec"),
        )
        job = Job(self.text("name"), shape, self.line)
        if not self.cells.get("creation_time") or not self.cells.get("deletion_time"):
            return job
        arrival, end = self.number("creation_time"), self.number("deletion_time")
        if end < arrival:
            raise self.error("deletion_time", f"{end:g} is before creation_time", "correct the row")
        return Job(job.name, shape, self.line, arrival, end - arrival)


def _rows(path: Path, *formats: tuple[str, ...]) -> list[_Row]:
    text = strict_yaml.read_text(path, "name a csv file", _MAX_BYTES).removeprefix("\ufeff")
    reader = csv.DictReader(text.splitlines())
    header = [name.strip() for name in reader.fieldnames or ()]
    wanted = " or ".join(",".join(columns) for columns in formats)
    if not any(set(columns) <= set(header) for columns in formats):
        fact = "is empty" if not text.strip() else f"has the columns {','.join(header)}"
        raise InputError("header", fact, f"begin the file with {wanted}", Place(str(path), 1, 1))
    reader.fieldnames = header
    rows = [_Row(path, reader.line_num, cells) for cells in reader]
    if not rows:
        raise InputError("rows", "the file has none", "write a row for each", Place(str(path), 1, 1))
    return rows
