"""The cache that all checkouts share: ``<cache>/tools/<tool>-<version>-<hash>/<tool>``.

A folder there is either complete or absent: it is filled elsewhere on the same file system and then renamed.
One lock file per Go module keeps two runs from building the same thing. Locks and logs lie outside ``tools``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuform.checkout.errors import Failure
from lab.toolchain.progress import Reporter

_POLL_S = 0.2  # seconds between two attempts at a lock that another run holds


class Store:
    """Folders and locks of one cache, created on first use."""

    def __init__(self, cache: Path) -> None:
        self.tools = cache / "tools"
        self.logs = cache / "logs"
        self._locks = cache / "locks"
        self._scratch = self.tools / ".build"

    def log(self, name: str) -> Path:
        """The log file of building ``name``; creates its folder."""
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / f"build-{name}.log"

    @contextmanager
    def lock(self, name: str, report: Reporter) -> Iterator[None]:
        """Hold the lock ``name``; while it waits, the reporter shows which process holds it.

        The kernel releases the lock when its holder dies, even by a kill.
        """
        self._locks.mkdir(parents=True, exist_ok=True)
        with (self._locks / f"{name}.lock").open("a+") as handle:
            started = time.monotonic()
            say = report.line  # the first line at once, then at the reporter's pace
            while not _try_lock(handle.fileno()):
                handle.seek(0)
                owner = handle.read().strip()
                say(f"{name}: waits for process {owner}, which gets it; {time.monotonic() - started:.0f} s")
                say = report.update
                time.sleep(_POLL_S)
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
            yield

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """An empty folder for the holder of the lock ``name``; what a killed holder left is removed."""
        parent = self._scratch / name
        shutil.rmtree(parent, ignore_errors=True)
        parent.mkdir(parents=True)
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(parent, ignore_errors=True)

    def publish(self, source: Path, folder: str) -> Path:
        """Move the filled folder ``source`` to ``tools/<folder>`` in one step; returns its new path."""
        target = self.tools / folder
        shutil.rmtree(target, ignore_errors=True)  # a folder that lost its binary by hand
        source.replace(target)
        return target

    def clean(self, locks: tuple[str, ...]) -> int:
        """Remove every tool and what killed builds left; returns the bytes that this freed.

        Raises Failure, having removed nothing, while another run builds. A binary that runs keeps running.
        """
        if not self.tools.exists():
            return 0
        handles = []
        self._locks.mkdir(parents=True, exist_ok=True)
        try:
            for name in locks:
                handle = (self._locks / f"{name}.lock").open("a+")
                handles.append(handle)
                if not _try_lock(handle.fileno()):
                    handle.seek(0)
                    fact = f"process {handle.read().strip()} builds {name} into {self.tools}"
                    raise Failure("toolchain", fact, "wait until it has ended, then clean")
            paths = [path for path in self.tools.rglob("*") if not path.is_dir() or path.is_symlink()]
            freed = sum(path.lstat().st_size for path in paths)
            shutil.rmtree(self.tools)
        finally:
            for handle in handles:
                handle.close()
        return freed


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
