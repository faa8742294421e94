"""Checks that a folder can be created and written, before any work starts; creates the state's."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

from gpuform.checkout.errors import InputError
from infra.model.base.quantities import version_numbers


def require(folder: Path, remedy: str) -> None:
    """Raise InputError unless ``folder`` is writable or can be created; leaves nothing behind.

    It tries a write: permission bits say nothing about a read-only disk, and nothing to root.
    """
    try:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        if not existing.is_dir():
            raise InputError(str(folder), f"{_subject(existing, folder)} a file, not a folder", remedy)
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise InputError(str(folder), f"cannot be written ({error.strerror})", remedy) from None


def require_state(state: Path) -> None:
    """As `require`, and raise InputError if a newer version has written the state."""
    require(state, "make it a writable folder, or set GPUFORM_STATE to one")
    file, running = version_file(state), version("gpuform")
    written = file.read_text(encoding="utf-8") if file.is_file() else ""
    if version_numbers(written) > version_numbers(running):
        fact = f"gpuform {written} has written this state, and this is gpuform {running}"
        raise InputError(str(file), fact, f"install gpuform {written} or a newer one")


def make_state(state: Path) -> None:
    """As `require_state`, then create it, with a .gitignore of all that is in it, as venv does."""
    require_state(state)
    state.mkdir(parents=True, exist_ok=True)
    ignored = state / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n", encoding="utf-8")


def version_file(state: Path) -> Path:
    """File with the version that wrote the state last."""
    return state / "engine" / "version"


def _subject(existing: Path, folder: Path) -> str:
    return "is" if existing == folder else f"{existing} is"
