"""Control groups: one per bed below every hierarchy, so that a bed's processes are known without a record.

systemd in a host needs its own group in each hierarchy of cgroup v1 as well as in v2, or hosts share the
root group. A process in the group certainly belongs to the bed; an id in a file cannot prove that.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = "gpuform-beds"
# All beds together weigh as much as one process of the machine's root group, with 1024 each:
# on a busy machine they would get a twentieth of the CPU, and a boot would take a minute.
SHARES = 16384


def hierarchies() -> list[Path]:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [
        Path(mount[1])
        for mount in mounts
        if mount[2] in ("cgroup", "cgroup2") and mount[1].startswith("/sys")
    ]


def make(group: str) -> list[Path]:
    """The group's folders, one per hierarchy, each ready to be entered."""
    while True:
        try:
            return _make(group)
        except FileNotFoundError:  # the end of the last bed has just removed the folder above
            continue


def _make(group: str) -> list[Path]:
    made = []
    for top in hierarchies():
        folder = top
        for part in (ROOT, *group.split("/")):
            folder = folder / part
            folder.mkdir(exist_ok=True)
            if part == ROOT and (folder / "cpu.shares").exists():
                (folder / "cpu.shares").write_text(str(SHARES))
            for knob in (
                "cpuset.cpus",
                "cpuset.mems",
            ):  # empty in a new group of cgroup v1: no process may enter
                if (
                    (folder / knob).exists()
                    and (folder.parent / knob).exists()
                    and not (folder / knob).read_text().strip()
                ):
                    (folder / knob).write_text((folder.parent / knob).read_text())
        made.append(folder)
    return made


def entering(folders: list[Path]) -> list[str]:
    enter = "".join(f"echo $$ >{shlex.quote(str(folder / 'cgroup.procs'))}; " for folder in folders)
    return ["sh", "-ec", f'{enter}exec "$@"', "sh"]


def members(group: str) -> set[int]:
    result: set[int] = set()
    for folder in _folders(group):
        with suppress(OSError):  # removed meanwhile
            result |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
    return result - {os.getpid()}


def end(group: str) -> None:
    """Kill all processes in the group and remove it; returns when none is left."""
    _leave(group)
    deadline = time.monotonic() + 30
    while left := members(group):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{group}: still running after 30 s: {sorted(left)}")
        _kill(group, left)
    for folder in _folders(group):
        with suppress(FileNotFoundError):
            _remove(folder, deadline)
    for top in hierarchies():
        with suppress(OSError):  # other beds are below it
            (top / ROOT).rmdir()


def _kill(group: str, pids: set[int]) -> None:
    """SIGKILL through pidfds that are opened before the membership is checked again."""
    handles = {}
    for pid in sorted(pids):  # a host's own loop started before its children
        with suppress(ProcessLookupError):
            handles[pid] = os.pidfd_open(pid)
    try:
        still = members(group)
        for pid in handles.keys() & still:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
        for pid in handles.keys() & still:
            select.select([handles[pid]], [], [], 2)
    finally:
        for handle in handles.values():
            os.close(handle)


def _leave(group: str) -> None:
    for top in hierarchies():
        for folder in _below(top / ROOT / group):
            with suppress(OSError):
                if str(os.getpid()) in (folder / "cgroup.procs").read_text().split():
                    (top / "cgroup.procs").write_text(str(os.getpid()))


def _folders(group: str) -> Iterator[Path]:
    for top in hierarchies():
        yield from _below(top / ROOT / group)


def _below(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder, topdown=False):
        yield Path(path)


def _remove(folder: Path, deadline: float) -> None:
    """Remove one group; the kernel keeps it busy for a moment after its last process."""
    while True:
        try:
            folder.rmdir()
        except OSError:
            if not folder.exists():
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
