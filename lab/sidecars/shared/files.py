"""Files that only their owner may read, and links to programs."""

from __future__ import annotations

from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write ``path`` with mode 0600 by rename; a reader sees the old content or the new one."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)


def link(place: Path, target: Path) -> None:
    """Make ``place`` a link by rename, so that a keeper always finds the old or the new link."""
    if place.is_symlink() and place.readlink() == target:
        return
    draft = place.with_name(f"{place.name}.new")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(place)
