"""Whether a program prints the same bytes whatever the order of its sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(script: str) -> set[bytes]:
    """What a program prints in two processes that hash strings differently: one thing, if it is good."""
    return {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
