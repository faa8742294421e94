"""Files of other projects that tests compare ours with.

A test without its file skips, and the closing lines of a run count such tests, see ``tests.tiers``. What a
Go module contains comes from there, pinned below ``toolchain/``. The rest is in ../shared/reference, which a
public clone does not have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from lab.toolchain.module_files import Source, cached_folder

ABSENT = "external check: "
REFERENCE = Path(__file__).parents[2] / "shared/reference"
_LAYOUTS = Source(
    "mig-layouts",
    "NVIDIA's MIG layouts",
    "github.com/NVIDIA/mig-parted",
    Path("deployments/systemd"),
    "config-default.yaml",
)


def reference(path: str) -> Path:
    """File or folder below ../shared/reference; skips the test if it does not exist."""
    found = REFERENCE / path
    if not found.exists():
        pytest.skip(f"{ABSENT}../shared/reference/{path} is not on this machine")
    return found


def module(source: Source, pinned: str) -> Path:
    """Folder with the files of ``source``, pinned in ``toolchain/<pinned>``; skips if unavailable."""
    here = Paths.here()
    pins = here.root / "toolchain" / pinned
    if not pins.is_dir():
        pytest.skip(f"{ABSENT}toolchain/{pinned} is not in this checkout")
    try:
        return cached_folder(source, pins, here.cache)
    except (Failure, InputError) as why:
        pytest.skip(f"{ABSENT}{why}")


def mig_layouts() -> dict[str, Any]:
    """``mig-configs`` of the file that mig-parted is shipped with."""
    file = module(_LAYOUTS, "mig-parted") / _LAYOUTS.required_file
    layouts: dict[str, Any] = yaml.safe_load(file.read_text())["mig-configs"]
    return layouts
