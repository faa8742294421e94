"""A lock between processes, which the kernel releases when its holder dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.plane import lock


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock at ``path``, waiting for it; its file is deleted with its last holder."""
    with lock.held(path, busy=lambda: None):
        yield
