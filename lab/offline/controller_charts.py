"""Charts of controllers, CRDs included, from the Go modules that their programs are built from."""

from __future__ import annotations

from pathlib import Path

from lab.sidecars.controllers.rows import CHARTS
from lab.toolchain.module_files import Source, cached_folder


def pin_folder(name: str) -> str:
    """Folder of the go.mod that requires the version, relative to the repository."""
    return f"toolchain/{CHARTS[name].name}"


def chart(name: str, pinned: Path, cache: Path) -> Path:
    """Folder with the published chart of a controller; fetched once, then cached.

    Raises Failure if the module cannot be fetched, InputError if Go is missing.
    """
    row = CHARTS[name]
    source = Source(f"chart-{name}", f"the chart {name}", row.module, Path(row.charts[name]), "Chart.yaml")
    return cached_folder(source, pinned, cache)
