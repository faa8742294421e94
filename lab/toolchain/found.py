"""Finds a tool on PATH, and asks it for its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infra.model.quantity import numbers
from lab.toolchain.catalogue import Tool

Source = Literal["path", "plugin", "package", "built", "missing"]


@dataclass(frozen=True)
class Found:
    """Where a tool comes from; ``path`` is None and ``version`` the wanted one when it is missing."""

    name: str
    version: str
    source: Source
    path: Path | None


def fits(version: str, accepts: tuple[str, str]) -> bool:
    """Whether a version lies in the range; a pre-release never does."""
    released = re.fullmatch(r"\d+\.\d+\.\d+", version)
    return bool(released) and numbers(accepts[0]) <= numbers(version) < numbers(accepts[1])


def ask_version(binary: Path, ask: tuple[str, ...]) -> str | None:
    """The version that a binary prints, pre-release part included; None if none comes within 10 seconds."""
    environment = os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        answer = subprocess.run(
            [binary, *ask],
            capture_output=True,
            text=True,
            timeout=10,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bv?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)", answer.stdout)
    return found[1] if found and answer.returncode == 0 else None


def on_path(tool: Tool) -> Found | None:
    """The first binary on PATH with an accepted version; others of that name are skipped."""
    for candidate in _candidates(tool.name) if tool.ask else ():
        version = ask_version(candidate, tool.ask or ())
        if version and fits(version, tool.accepted):
            return Found(tool.name, version, "path", candidate)
    return None


def _candidates(name: str) -> Iterator[Path]:
    seen = set()
    for folder in os.get_exec_path():
        candidate = shutil.which(name, path=folder)
        if candidate and (real := Path(candidate).resolve()) not in seen:
            seen.add(real)
            yield Path(candidate).absolute()
