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
    for entry in parent.iterdir():
        if not _is_alive(entry.name.partition("-")[0]):
            shutil.rmtree(entry, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def preserved_logs(paths: Paths) -> Path:
    """Where the logs of a temporary state are after its end: beside it, those of one run."""
    return paths.state.with_name(f"{paths.state.name}.logs")


@contextmanager
def preserve_logs(paths: Paths) -> Iterator[None]:
    """Move the logs of a temporary state to `preserved_logs` on every exit; a Failure then names it."""
    destination = preserved_logs(paths)
    try:
        yield
    except Failure as failure:
        failure.replace_path(str(paths.logs), str(destination))
        raise
    finally:
        shutil.rmtree(destination, ignore_errors=True)
        if paths.logs.is_dir():
            paths.logs.replace(destination)


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def read_files(folder: Path) -> dict[str, bytes]:
    """Contents by path below the folder; empty without one."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
