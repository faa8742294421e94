"""Whether a folder can be had and written, asked before anything is begun."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpuform.errors import InputError


def require(folder: Path, remedy: str) -> None:
    """Raise InputError unless files can be made in ``folder``, or it can be made; leaves nothing behind.

    It is tried, not looked up: permission bits say nothing of a read-only disk, or to root.
    """
    try:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        if not existing.is_dir():
            raise InputError(str(folder), f"{_same(existing, folder)} a file, not a folder", remedy)
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise InputError(str(folder), f"cannot be written ({error.strerror})", remedy) from None


def require_state(state: Path) -> None:
    """Raise InputError unless the checkout's state can be kept in ``state``."""
    require(state, "make it a folder that you may write, or set GPUFORM_STATE to one")


def _same(existing: Path, folder: Path) -> str:
    return "is" if existing == folder else f"{existing} is"
