"""Files of Go modules that are pinned below ``toolchain/``: charts and units that others have written."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from gpuform.paths import Paths
from gpuform.toolchain.golang import plain_environment


@cache
def module(path: str, version: str, pinned: str) -> Path:
    """The module's folder in Go's cache; skips where it cannot be had.

    Args:
        path: import path of the module.
        version: without the leading v.
        pinned: folder below ``toolchain/`` that has the module's sums.
    """
    if shutil.which("go") is None:
        pytest.skip(f"no Go on PATH, to find {path} with")
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{path}@v{version}"],
        cwd=Paths.here().root / "toolchain" / pinned,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = json.loads(done.stdout or "{}")
    if "Dir" not in said:
        pytest.skip(f"{path} {version} is not to be had: {said.get('Error', done.stderr)}")
    return Path(said["Dir"])
