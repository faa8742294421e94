"""Finds and ends our own processes, and no others.

A process is recognised by its command line: kwokctl starts every member through a link in our state folder,
so that folder's path, as kwokctl was given it, is in there. A process id from a file proves nothing after a
reboot or a kill, so signals go through a pidfd opened before the process is checked, and a reused id is never
hit. A pidfd also tells when a process has closed its ports; its command line is gone before that.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuform.checkout.paths import MAIN_STACK, Paths
from lab.plane.layout import Layout

PROC = Path("/proc")
MEMBERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
SIMULATOR = "simulator"
SCHEDULER_KEEPER = "scheduler-keeper"
MONITORING_KEEPER = "monitor-keeper"
CONTROLLER_KEEPER = "controller-keeper"
PROMETHEUS = "prometheus"
STATE_METRICS = "kube-state-metrics"
SECOND_SCHEDULER = "gpuform-packer"
KWOKCTL = "kwokctl"
EXEC_RETRIES = 100  # a millisecond apart; exec takes a few of them on a busy machine
KERNEL_THREAD = 0x00200000  # PF_KTHREAD among the flags, field 9 of proc_pid_stat(5)

Naming = Callable[[Sequence[str]], str | None]
"""Arguments of a process -> its name here; None if the process is not ours."""


@dataclass(frozen=True)
class Process:
    """A process of this checkout; ``started`` is in clock ticks since boot (proc_pid_stat(5), field 22)."""

    name: str
    pid: int
    started: int

    @property
    def start_time(self) -> float:
        """Start time in seconds since 1970, to the hundredth."""
        boot = next(line for line in (PROC / "stat").read_text().splitlines() if line.startswith("btime "))
        return int(boot.split()[1]) + self.started / os.sysconf("SC_CLK_TCK")

    @property
    def rss_bytes(self) -> int:
        """Resident bytes now; 0 once it has ended."""
        try:
            return int((PROC / str(self.pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0


def scan(layout: Layout) -> list[Process]:
    """Every process of this checkout's control plane: members, our own programs, a running kwokctl."""
    return scan_by(naming_of(layout))


def stacks_with_planes(paths: Paths) -> list[str]:
    """Stacks of this checkout with a control plane, also if its folder was deleted while it ran.

    The first is always ``MAIN_STACK``.
    """
    within = re.compile(re.escape(f"{paths.planes.resolve()}/") + r"([^/]+)/")
    pids = (int(entry.name) for entry in os.scandir(PROC) if entry.name.isdigit())
    running = {match[1] for pid in pids for match in within.finditer(" ".join(_command_line_of(pid)))}
    others = {*running, *(folder.name for folder in paths.planes.glob("*/"))}
    return [MAIN_STACK, *sorted(others)]


def scan_by(naming: Naming) -> list[Process]:
    pids = [int(entry.name) for entry in os.scandir(PROC) if entry.name.isdigit()]
    return [process for pid in pids if (process := find_process_by(naming, pid))]


def find_process_by(naming: Naming, pid: int) -> Process | None:
    try:
        name = naming(_command_line(pid))
        return None if name is None else Process(name, pid, int(_stat(pid)[19]))
    except (OSError, IndexError):
        return None


def _command_line(pid: int) -> list[str]:
    """Its arguments; one empty string for a kernel thread or a zombie.

    During exec a process has none for a moment, which is waited for.
    """
    for _ in range(EXEC_RETRIES):
        raw = _read(f"{PROC}/{pid}/cmdline")
        if raw or (state := _stat(pid))[0] in "ZX" or int(state[6]) & KERNEL_THREAD:
            break
        time.sleep(0.001)
    return raw.decode(errors="replace").split("\0")


def _command_line_of(pid: int) -> list[str]:
    """As `_command_line`; empty if the process has ended."""
    try:
        return _command_line(pid)
    except (OSError, IndexError):
        return []


def _stat(pid: int) -> list[str]:
    """proc_pid_stat(5) from its third field on; the second, the name, may itself hold blanks and brackets."""
    return _read(f"{PROC}/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()


def _read(path: str) -> bytes:
    """A whole file; four times as fast as pathlib, and a start reads thousands of these."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


_OWN_MODULES = {
    "lab.simulator": SIMULATOR,
    "lab.sidecars.second_scheduler": SCHEDULER_KEEPER,
    "lab.sidecars.monitoring": MONITORING_KEEPER,
    "lab.sidecars.controllers": CONTROLLER_KEEPER,
}
"""Process by the module that it runs."""


def naming_of(layout: Layout) -> Naming:
    """The naming of a checkout's processes; a start asks it for every process of the machine many times."""
    members, monitor, controllers = (
        f"{home}/bin/" for home in (layout.workdir, layout.monitor, layout.controllers)
    )
    config, kubeconfig, packer = str(layout.config), str(layout.paths.kubeconfig), str(layout.packer)

    def name(argv: Sequence[str]) -> str | None:
        folder, slash, program = argv[0].rpartition("/")
        folder += slash
        if folder == members:
            if "--version" in argv:
                return None  # kwokctl asking a binary for its version
            member = "kwok" if program == "kwok-controller" else program
            return member if member in MEMBERS else None
        if program == KWOKCTL and config in argv:
            return KWOKCTL
        if kubeconfig in argv and (own_name := next(filter(None, map(_OWN_MODULES.get, argv)), None)):
            return own_name
        if folder == controllers:
            return program
        if folder == monitor and program in (PROMETHEUS, STATE_METRICS):
            return program
        return SECOND_SCHEDULER if argv[0] == packer else None

    return name


def end_processes(layout: Layout, processes: Iterable[Process], grace: float) -> None:
    end_processes_by(naming_of(layout), processes, grace)


def end_processes_by(naming: Naming, processes: Iterable[Process], grace: float) -> None:
    """SIGTERM, ``grace`` seconds of patience (0: none), then SIGKILL; returns once all are gone.

    A process id that belongs to another process by now is left alone.
    """
    handles = {}
    for process in processes:
        try:
            handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        if find_process_by(naming, process.pid) == process:
            handles[process] = handle
        else:
            os.close(handle)
    try:
        if grace > 0:
            _signal(handles.values(), signal.SIGTERM)
            _wait(handles.values(), grace)
        _signal(handles.values(), signal.SIGKILL)
        _wait(handles.values(), 10)
    finally:
        for handle in handles.values():
            os.close(handle)


def _signal(handles: Iterable[int], number: signal.Signals) -> None:
    for handle in handles:
        try:
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            continue  # ended meanwhile


def _wait(handles: Iterable[int], seconds: float) -> None:
    poll = select.poll()
    waiting = set(handles)
    for handle in waiting:
        poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + seconds
    while waiting and (remaining := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(remaining * 1000):
            poll.unregister(handle)
            waiting.discard(handle)
