"""Starts the control plane: a stopped one is started, any other is created with the data of the last one."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuform.checkout.errors import Failure
from gpuform.engine.files import Tools
from lab.plane import kwokctl, ports
from lab.plane.kwokctl import last_line
from lab.plane.layout import Layout, Record, complete_pki, keep_pki, rotate_log
from lab.plane.processes import KWOKCTL, MEMBERS, Process, end_processes, scan
from lab.sidecars.shared.files import write_private

Progress = Callable[[str], None]
READY_SECONDS = 90.0  # a start takes 3 s on two idle cores; the rest is for a machine that is busy
UNRESPONSIVE_SECONDS = 10.0  # if all members run and do not answer for this long, they are restarted
MAX_DEATHS = 4  # a member that dies so often while starting will not come up
APISERVER, KWOK = "kube-apiserver", "kwok"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def bring_up(layout: Layout, tools: Tools, port: int | None, progress: Progress) -> None:
    """Return once every member runs and the API accepts pods; the caller holds the lock.

    ``port`` asks for an apiserver port; None keeps the stored one, or takes a free one. Raises InputError
    for a port that cannot be used, before anything has changed, and Failure if a member does not come up.
    """
    end_named(layout, KWOKCTL)
    stored = Record.load(layout)
    if set(stored.ports) != set(ports.NAMES):
        stored = Record()
        end_members(layout)  # their state folder was deleted, so nothing can reach them any more
    running = members(scan(layout))
    wanted = _choose_ports(layout, stored, port, running)
    text = kwokctl.configuration(layout, wanted)
    target = Record(ports=wanted, digest=kwokctl.digest(text))
    installed = stored == target and complete_pki(layout.workdir / "pki")
    if installed and set(running) == set(MEMBERS):
        if _answers(layout, wanted[APISERVER]):
            return
        progress("the control plane runs but does not answer; restarting it")
    tools.ensure(*kwokctl.BINARIES, KWOKCTL, progress=progress)
    progress(f"{'starting' if layout.etcd.exists() else 'creating'} the control plane")
    if installed and not running:
        kwokctl.link_binaries(layout, tools)
        _start(layout, tools, MEMBERS)
    else:
        _create(layout, tools, target, text)
    _supervise(layout, tools, wanted[APISERVER], progress)
    if Probe(wanted[APISERVER], layout.workdir / "pki").drop_leases():
        end_named(layout, KWOK)
        _supervise(layout, tools, wanted[APISERVER], progress)


def members(processes: Sequence[Process]) -> dict[str, Process]:
    """The members that run exactly once, by name; a member that runs twice counts as not running."""
    counts = Counter(process.name for process in processes)
    return {one.name: one for one in processes if one.name in MEMBERS and counts[one.name] == 1}


def end_members(layout: Layout) -> None:
    """End all members; etcd last and by SIGTERM, so that it closes its data; the others hold none."""
    end_named(layout, *(name for name in MEMBERS if name != "etcd"))
    end_named(layout, "etcd", grace=5)


def end_named(layout: Layout, *names: str, grace: float = 0) -> None:
    end_processes(layout, [process for process in scan(layout) if process.name in names], grace)


def _choose_ports(
    layout: Layout, stored: Record, port: int | None, running: Mapping[str, Process]
) -> dict[str, int]:
    """The stored ports, or a first choice; ports that only members use are replaced if they are taken."""
    wanted = dict(stored.ports) or ports.choose(layout.paths.plane)
    moved = port is not None and port != wanted[APISERVER]
    if port is not None:
        wanted[APISERVER] = port
    if moved or APISERVER not in running:
        ports.require_free(wanted[APISERVER], by_option=port is not None)
    inner = {name: wanted[name] for name in ports.MEMBER_PORTS if name != APISERVER}
    lost = any(
        number == wanted[APISERVER]
        or (name.removesuffix("-peer") not in running and not ports.is_free(number))
        for name, number in inner.items()
    )
    if lost:
        fresh = ports.choose(layout.paths.plane, taken=[wanted[APISERVER]])
        wanted |= {name: fresh[name] for name in inner}
    return wanted


def _create(layout: Layout, tools: Tools, target: Record, text: str) -> None:
    """Create the cluster with kwokctl; data and certificates of an earlier cluster are kept.

    It repairs whatever a kill has left.
    """
    end_members(layout)
    replace(target, digest="").store(layout)
    shutil.rmtree(layout.kwok_home, ignore_errors=True)
    layout.workdir.mkdir(parents=True)
    (layout.workdir / "logs").symlink_to(layout.logs, target_is_directory=True)
    kwokctl.link_binaries(layout, tools)
    if complete_pki(layout.pki):
        shutil.copytree(layout.pki, layout.workdir / "pki")
    write_private(layout.config, text)
    for name in MEMBERS:
        rotate_log(layout.log(name))
    # An empty --kubeconfig keeps kwokctl away from the user's own.
    kwokctl.run(layout, tools, "create", "cluster", "--kubeconfig", "")
    keep_pki(layout)
    target.store(layout)


def _start(layout: Layout, tools: Tools, names: Iterable[str]) -> None:
    """Have kwokctl start these members, none of which runs."""
    for name in names:  # kwokctl truncates its log, and takes a zombie for a running process
        rotate_log(layout.log(name))
        (layout.workdir / "pids" / f"{layout.log(name).stem}.pid").unlink(missing_ok=True)
    kwokctl.run(layout, tools, "start", "cluster")


def _answers(layout: Layout, port: int) -> bool:
    probe = Probe(port, layout.workdir / "pki")
    deadline = time.monotonic() + UNRESPONSIVE_SECONDS
    while not probe.is_usable():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _supervise(layout: Layout, tools: Tools, port: int, progress: Progress) -> None:
    """Wait for readiness; a member that dies meanwhile is restarted a few times.

    A member may die without a fault: the controller manager waits only ten seconds for a slow apiserver.
    """
    probe = Probe(port, layout.workdir / "pki")
    deadline = time.monotonic() + READY_SECONDS
    deaths: Counter[str] = Counter()
    while True:
        dead = [name for name in MEMBERS if name not in members(scan(layout))]
        if not dead and probe.is_usable():
            return
        if dead:
            deaths.update(dead)
            _check_deaths(layout, deaths)
            progress("restarting " + ", ".join(dead))
            _start(layout, tools, dead)
        if time.monotonic() > deadline:
            fact = f"not ready after {READY_SECONDS:.0f} s: {last_line(layout.log(APISERVER))}"
            raise Failure("embedded control plane", fact, f"see {layout.logs}")
        time.sleep(0.05)


def _check_deaths(layout: Layout, deaths: Counter[str]) -> None:
    name, times = deaths.most_common(1)[0]
    if times < MAX_DEATHS:
        return
    last_message = last_line(layout.log(name))
    end_members(layout)
    remedy = f"see {layout.log(name)}; to start from scratch, without its data: gpuform local stop --delete"
    raise Failure("embedded control plane", f"{name} exits as soon as it is started: {last_message}", remedy)


class Probe:
    """The requests of a start to one API server, with the administrator's certificate and without kubectl."""

    def __init__(self, port: int, pki: Path, timeout: float = 1.0) -> None:
        """``timeout`` is in seconds per request. Reads the certificates now."""
        self._port = port
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def ready(self) -> bool:
        """Whether ``/readyz`` succeeds; false too while no server listens."""
        return self._ask("GET", "/readyz") is not None

    def is_usable(self) -> bool:
        """Ready, and the default service account exists, without which the first pod would be refused.

        The controller manager creates it, but polls the server only once a second. So it is created here if
        it is missing, which gives the same object.
        """
        if not self.ready():
            return False
        account = "/api/v1/namespaces/default/serviceaccounts"
        if self._ask("GET", f"{account}/default") is not None:
            return True
        self._ask("POST", account, '{"metadata": {"name": "default"}}')
        return self._ask("GET", f"{account}/default") is not None

    def drop_leases(self) -> bool:
        """Delete the leases of simulated nodes; false if there are none.

        Each kwok has an identity of its own, and leaves a node alone until the lease of the last one ends
        (kwok, controllers.Identity and tryAcquireOrRenew). Until then no pod starts there.
        """
        leases = json.loads(self._ask("GET", _LEASES) or "{}").get("items")
        return bool(leases) and self._ask("DELETE", _LEASES) is not None

    def version(self) -> str | None:
        """The server's own version, such as ``v1.34.4``; None when it does not answer."""
        answer = self._ask("GET", "/version")
        return str(json.loads(answer)["gitVersion"]) if answer else None

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes | None:
        """The answer's body; None for any error, since errors are normal while a server starts."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=self._timeout, context=self._tls
        )
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            content = answer.read()
            return content if answer.status < http.client.BAD_REQUEST else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
