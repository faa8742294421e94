"""The local stack rendered, byte for byte.

GPUFORM_UPDATE_GOLDEN=1 writes the files again; read the difference before committing it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.config import load
from infra.plan.render import render

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "local"


def test_the_local_stack_is_what_was_reviewed() -> None:
    files = render(load(ROOT / "Pulumi.local.yaml"))
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        for old in GOLDEN.glob("*.yaml"):
            old.unlink()
        for name, text in files.items():
            (GOLDEN / name).write_text(text, encoding="utf-8")
    assert {path.name for path in GOLDEN.glob("*.yaml")} == set(files)
    for name, text in files.items():
        assert (GOLDEN / name).read_bytes() == text.encode(), f"{name} differs from tests/golden/local"


def test_the_bytes_do_not_depend_on_the_process() -> None:
    script = (
        "import hashlib, pathlib; from infra.config import load; from infra.plan.render import render;"
        "files = render(load(pathlib.Path('Pulumi.local.yaml')));"
        "print(hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
