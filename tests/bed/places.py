"""Paths of beds: one folder per bed, and beside them the files that all beds share."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
SHARED = "_"  # not a valid bed name


def state() -> Path:
    """$GPUFORM_BED_STATE, or the user's cache."""
    given = os.environ.get("GPUFORM_BED_STATE")
    return Path(given) if given else Path.home() / ".cache" / "gpuform" / "beds"


def shared() -> Path:
    """Base images, cached mirror files, built packages, locks."""
    return state() / SHARED


def bed(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name}: a bed's name has lower case letters, digits and dashes, at most 40")
    return state() / name


def names() -> list[str]:
    if not state().is_dir():
        return []
    return sorted(entry.name for entry in state().iterdir() if _NAME.fullmatch(entry.name))
