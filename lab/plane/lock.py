"""One start or stop at a time per checkout."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(path: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at ``path``; calls ``busy`` once if another process holds it, then waits.

    The kernel gives the lock back when its holder dies, so a stale file never blocks; the file itself is
    removed at the end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _acquire(path, busy)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _acquire(path: Path, busy: Callable[[], None]) -> int:
    told = False
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                busy()
                told = True
            fcntl.flock(handle, fcntl.LOCK_EX)
        # The previous holder may have removed the file that we opened; another process may hold a newer one.
        try:
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)
