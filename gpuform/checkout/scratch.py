"""Temporary folders of one run, below the checkout's state, and the logs that stay when they are removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths


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


def kept_logs(own: Paths) -> Path:
    """Where the logs of a temporary state are after its end: beside it, those of one run."""
    return own.state.with_name(f"{own.state.name}.logs")


@contextmanager
def keeping_logs(own: Paths) -> Iterator[None]:
    """Move the logs of a temporary state to `kept_logs` on every exit; a Failure then names that place."""
    kept = kept_logs(own)
    try:
        yield
    except Failure as failure:
        failure.rename(str(own.logs), str(kept))
        raise
    finally:
        shutil.rmtree(kept, ignore_errors=True)
        if own.logs.is_dir():
            own.logs.replace(kept)


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True
