"""One start or stop at a time per checkout."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_lock(path: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at ``path``; calls ``busy`` once if another process holds it, then waits.

    The kernel gives the lock back when its holder dies, so a stale file never blocks. The file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
