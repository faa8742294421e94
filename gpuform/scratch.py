"""Temporary folders of one run, below the checkout's state; the next run removes those of a killed run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder(parent: Path) -> Iterator[Path]:
    """An empty folder of mode 0700 in ``parent``, which is created if missing; removed on every exit.

    Its name begins with this process's id. Folders of ended processes in ``parent`` are removed first.
    """
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in parent.iterdir():
        if not _alive(left.name.partition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True
