"""Start, stop and status of the control plane of one stack."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuform.checkout import writable
from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.files import Tools
from infra.model.environment import Environment
from lab.plane import controlling, lock, monitoring, sidecars, starting
from lab.plane.layout import Layout, Record, complete_pki, kubeconfig
from lab.plane.processes import KWOKCTL, MEMBERS, SIMULATOR, scan
from lab.sidecars.controllers.rows import OPERATOR
from lab.sidecars.shared.files import write_private


@dataclass(frozen=True)
class Member:
    """One process of the control plane.

    ``rss_bytes`` is the resident set from ``/proc/<pid>/statm`` in bytes, the binary's pages included; 0 when
    it does not run. ``port`` is the loopback port it serves on, None where it serves nothing.
    """

    name: str
    pid: int | None
    running: bool
    rss_bytes: int
    port: int | None


@dataclass(frozen=True)
class Status:
    """Members in the order in which they depend on each other, and how to reach the API.

    ``kubernetes`` is the version that the server itself reports, such as ``v1.34.4``; None if it does not
    answer within a second. ``ready`` is the server's own ``/readyz``. ``sidecar_messages`` lists what is
    not as declared in monitoring.
    """

    members: tuple[Member, ...]
    kubeconfig: Path
    server: str | None
    ready: bool
    kubernetes: str | None
    sidecar_messages: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether every member runs; says nothing of readiness."""
        return all(member.running for member in self.members)


def _no_progress(line: str) -> None:
    pass


class ControlPlane:
    """The embedded control plane of one stack of a checkout, by ``paths.stack``.

    It consists of etcd, kube-apiserver, controller manager, scheduler, kwok and the node simulator, and of a
    second scheduler, Prometheus and kube-state-metrics if a stack declares them. Every method may be called
    at any time and in any state, from several processes at once; the object holds no state. Linux only: it
    reads ``/proc``.
    """

    def __init__(self, paths: Paths, toolchain: Tools) -> None:
        """``toolchain`` is asked for binaries only when a process has to be started."""
        # Our processes are recognised by this path, so it must be spelled one way only.
        self._layout = Layout(replace(paths, state=paths.state.resolve()))
        self._tools = toolchain

    def start(
        self, port: int | None = None, simulator: bool = True, progress: Callable[[str], None] = _no_progress
    ) -> None:
        """Start what does not run, and return once the API accepts pods.

        ``port`` is the apiserver's, on 127.0.0.1; a running cluster moves there and keeps its data. Raises
        InputError if the port is invalid or taken or the state cannot be written, Failure if a member does
        not come up. With ``simulator`` false, the simulator and the keepers are not started; running ones are
        left alone.
        """
        paths = self._layout.paths
        self._layout.require_plain()
        writable.make_state(paths.state)
        for folder in (paths.plane, self._layout.home, self._layout.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self._layout.home.chmod(0o700)  # it holds the certificate authority's key
        with lock.file_lock(self._layout.lock, lambda: progress("waiting for another start or stop to end")):
            self._layout.home.mkdir(mode=0o700, exist_ok=True)  # a deletion that we waited for removed it
            starting.bring_up(self._layout, self._tools, port, progress)
            if self._write_kubeconfig():
                sidecars.stop(self._layout)  # they have read the old kubeconfig
            if simulator:
                sidecars.ensure(self._layout, self._tools, progress)

    @property
    def has_data(self) -> bool:
        """Whether it was started before, and its data has not been deleted since."""
        return self._layout.etcd.exists()

    @property
    def operator(self) -> str:
        """NVIDIA's own operator with its version, if it runs here; empty if the simulator plays it."""
        program = self._layout.operator
        return controlling.operator_title(program) if program.exists() else ""

    def choose_operator(self, real: bool, progress: Callable[[str], None] = _no_progress) -> None:
        """Whether NVIDIA's own operator and NFD run here, or the simulator plays them.

        Decided before the first start: neither takes over the other's release. Raises InputError for another
        choice later, and the errors of a build.
        """
        if real == self._layout.operator.exists():
            return
        if self.has_data:
            fact = f"the control plane of stack {self._layout.paths.stack} has the other one already"
            remedy = f"delete its data first: `gpuform local stop {self._layout.paths.stack} --delete`"
            raise InputError("--operator", fact, remedy)
        controlling.prepare(self._layout, self._tools, OPERATOR, progress)

    @property
    def logs(self) -> Path:
        return self._layout.logs

    def prepare_monitoring(self, progress: Callable[[str], None] = _no_progress) -> None:
        """Prepare a running control plane for a stack that declares monitoring.

        Defines prometheus-operator's kinds and gets the keeper's programs, unless they are there. Raises
        InputError if the control plane was never started, Failure if a kind or a program cannot be had.
        """
        monitoring.prepare(self._layout, self._tools, progress)

    def start_with_controllers(self, *names: str, progress: Callable[[str], None] = _no_progress) -> None:
        """Get these controllers, and start the control plane with a way to them.

        One that has run without controllers is restarted once; its data stays. Errors as ``start``, and those
        of a build.
        """
        controlling.prepare(self._layout, self._tools, names, progress)
        self.start(progress=progress)

    def start_for(
        self, env: Environment, progress: Callable[[str], None] = _no_progress, measured: bool = True
    ) -> None:
        """Start the control plane and what the environment declares; errors as the functions above.

        With ``measured`` false, the programs of monitoring are left to `prepare_monitoring`.
        """
        if names := controlling.declared_controllers(env, self._layout.operator.exists()):
            self.start_with_controllers(*names, progress=progress)
        else:
            self.start(progress=progress)
        if env.monitoring and measured:
            self.prepare_monitoring(progress=progress)
        elif env.monitoring:
            self.define_monitoring_kinds(progress=progress)

    def define_monitoring_kinds(self, progress: Callable[[str], None] = _no_progress) -> None:
        """Define prometheus-operator's kinds only, for a caller that plans with them and measures nothing."""
        monitoring.define_kinds(self._layout, progress)

    def stop(self, delete: bool = False) -> None:
        """End every process of this control plane; its objects are kept for the next start.

        With ``delete``, remove its data, ports, certificates, logs and kubeconfig.
        """
        if not self._layout.paths.plane.exists():
            self._end_all()
            return
        writable.require_state(self._layout.paths.state)
        with lock.file_lock(self._layout.lock, lambda: None):
            self._end_all()
            if delete and self._layout.paths.plane != self._layout.paths.state:
                shutil.rmtree(self._layout.paths.plane, ignore_errors=True)
            elif delete:
                shutil.rmtree(self._layout.home, ignore_errors=True)
                self._layout.paths.kubeconfig.unlink(missing_ok=True)
                for name in (*MEMBERS, *sidecars.ALWAYS, *sidecars.DECLARED, KWOKCTL):
                    log = self._layout.log(name)
                    log.unlink(missing_ok=True)
                    log.with_name(f"{log.stem}.previous.log").unlink(missing_ok=True)

    def status(self) -> Status:
        """What runs now; takes no lock and starts nothing, one second at most."""
        layout = self._layout
        record = Record.load(layout)
        running = {process.name: process for process in scan(layout)}
        rows = []
        declared = [name for name in sidecars.DECLARED if name in running]
        for name in (*MEMBERS, *sidecars.ALWAYS, *declared):
            process = running.get(name)
            port = record.ports.get("simulator-metrics" if name == SIMULATOR else name)
            pid, rss = (process.pid, process.rss_bytes) if process else (None, 0)
            rows.append(Member(name, pid, process is not None, rss, port))
        port = record.ports.get(starting.APISERVER)
        answers, version = False, None
        if port is not None and starting.APISERVER in running and complete_pki(layout.pki):
            probe = starting.Probe(port, layout.pki, timeout=0.5)
            version = probe.version()
            answers = version is not None and probe.ready()
        server = f"https://127.0.0.1:{port}" if port is not None else None
        messages = sidecars.sidecar_messages(layout)
        return Status(tuple(rows), layout.paths.kubeconfig, server, answers, version, messages)

    def _end_all(self) -> None:
        """kwokctl first, or it would restart what is ended; then our own programs, the members, etcd last."""
        starting.end_named(self._layout, KWOKCTL)
        sidecars.stop(self._layout)
        starting.end_members(self._layout)

    def _write_kubeconfig(self) -> bool:
        """Write it if it differs; returns whether it did. A start that starts nothing changes no file."""
        path = self._layout.paths.kubeconfig
        port = Record.load(self._layout).ports[starting.APISERVER]
        text = kubeconfig(f"https://127.0.0.1:{port}", self._layout.pki)
        if path.is_file() and path.read_text() == text and path.stat().st_mode & 0o777 == 0o600:
            return False
        write_private(path, text)
        return True
