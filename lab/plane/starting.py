"""Starts the control plane from any state: absent, complete, partly killed, partly installed."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuform.checkout.errors import Failure
from gpuform.engine.places import Tools
from lab.plane import kwokctl, ports
from lab.plane.kwokctl import last_line
from lab.plane.layout import Layout, Record, complete_pki, keep_pki, rotate
from lab.plane.probe import Probe
from lab.plane.processes import KWOKCTL, MEMBERS, Process, end, scan
from lab.sidecars.shared.files import write_private

Progress = Callable[[str], None]
READY_SECONDS = 90.0  # a start takes 3 s on two idle cores; the rest is for a machine that is busy
WEDGED_SECONDS = 10.0  # if all members run and do not answer for this long, they are restarted
DEATHS = 4  # a member that dies so often while starting will not come up
APISERVER, KWOK = "kube-apiserver", "kwok"


def bring_up(layout: Layout, tools: Tools, port: int | None, progress: Progress) -> None:
    """Return once every member runs and the API accepts pods; the caller holds the lock.

    ``port`` asks for an apiserver port; None keeps the stored one, or takes a free one. Raises InputError
    for a port that cannot be used, before anything has changed, and Failure if a member does not come up.
    """
    end(layout, [process for process in scan(layout) if process.name == KWOKCTL], grace=0)
    stored = Record.load(layout)
    if not set(ports.OF_MEMBERS) <= set(stored.ports):
        stored = Record()
        end_members(layout)  # their state folder was deleted, so nothing can reach them any more
    elif added := set(ports.NAMES) - set(stored.ports):  # an older version stored fewer ports
        fresh = ports.choose(layout.paths.state, taken=stored.ports.values())
        stored = replace(stored, ports=stored.ports | {name: fresh[name] for name in added})
        stored.store(layout)
    running = members(scan(layout))
    wanted = _ports(layout, stored, port, running)
    text = kwokctl.configuration(layout, wanted)
    target = Record(ports=wanted, digest=kwokctl.digest(text), installed=True)
    whole = stored == target and complete_pki(layout.workdir / "pki")
    if whole and set(running) == set(MEMBERS):
        if _answers(layout, wanted[APISERVER]):
            return
        progress("the control plane runs but does not answer; restarting it")
        end_members(layout)
        running = {}
    tools.ensure(*kwokctl.BINARIES, KWOKCTL, progress=progress)
    binaries = {name: tools.path(name) for name in kwokctl.BINARIES}
    if whole and kwokctl.linked(layout) == binaries:
        progress("starting " + ", ".join(name for name in MEMBERS if name not in running))
        _start_missing(layout, tools)
    else:
        progress("creating the control plane")
        _install(layout, tools, target, text, binaries)
    _supervise(layout, tools, wanted[APISERVER], progress)
    began = members(scan(layout)).get(KWOK) != running.get(KWOK)
    if began and Probe(wanted[APISERVER], layout.workdir / "pki").drop_leases():
        end(layout, [process for process in scan(layout) if process.name == KWOK], grace=0)
        _supervise(layout, tools, wanted[APISERVER], progress)


def members(found: Sequence[Process]) -> dict[str, Process]:
    """The members that run exactly once, by name; a member that runs twice counts as not running."""
    counts = Counter(process.name for process in found)
    return {
        process.name: process for process in found if process.name in MEMBERS and counts[process.name] == 1
    }


def end_members(layout: Layout) -> None:
    """End all members; etcd last and by SIGTERM, so that it closes its data; the others hold none."""
    found = [process for process in scan(layout) if process.name in MEMBERS]
    end(layout, [process for process in found if process.name != "etcd"], grace=0)
    end(layout, [process for process in found if process.name == "etcd"], grace=5)
    for file in (layout.workdir / "pids").glob("*.pid"):
        file.unlink(missing_ok=True)


def _ports(
    layout: Layout, stored: Record, port: int | None, running: Mapping[str, Process]
) -> dict[str, int]:
    """The stored ports, or a first choice; ports that only members use are replaced if they are taken."""
    wanted = dict(stored.ports) or ports.choose(layout.paths.state)
    moved = port is not None and port != wanted[APISERVER]
    if port is not None:
        wanted[APISERVER] = port
    if moved or APISERVER not in running:
        ports.require(wanted[APISERVER], asked=port is not None)
    inner = {name: wanted[name] for name in ports.OF_MEMBERS if name != APISERVER}
    lost = any(
        number == wanted[APISERVER]
        or (name.removesuffix("-peer") not in running and not ports.is_free(number))
        for name, number in inner.items()
    )
    if lost:
        fresh = ports.choose(layout.paths.state, taken=[wanted[APISERVER]])
        wanted |= {name: fresh[name] for name in inner}
    return wanted


def _install(layout: Layout, tools: Tools, target: Record, text: str, binaries: Mapping[str, Path]) -> None:
    """Create the cluster with kwokctl; data and certificates of an earlier cluster are kept."""
    end_members(layout)
    Record(ports=target.ports, digest=target.digest, installed=False).store(layout)
    shutil.rmtree(layout.kwok_home, ignore_errors=True)
    layout.workdir.mkdir(parents=True)
    (layout.workdir / "logs").symlink_to(layout.paths.logs, target_is_directory=True)
    kwokctl.link(layout, binaries)
    if complete_pki(layout.pki):
        shutil.copytree(layout.pki, layout.workdir / "pki")
    write_private(layout.config, text)
    for name in MEMBERS:
        rotate(layout.log(name))
    # An empty --kubeconfig keeps kwokctl away from the user's own.
    kwokctl.run(layout, tools, "create", "cluster", "--kubeconfig", "")
    keep_pki(layout)
    target.store(layout)


def _start_missing(layout: Layout, tools: Tools) -> None:
    """Start the missing members with kwokctl.

    kwokctl trusts any living process with an id from its files, even a reused id. So the files are rewritten
    from the members that really run.
    """
    found = scan(layout)
    running = members(found)
    end(layout, [p for p in found if p.name in MEMBERS and p.name not in running], grace=0)
    folder = layout.workdir / "pids"
    for name in MEMBERS:
        file = folder / f"{'kwok-controller' if name == 'kwok' else name}.pid"
        if name in running:
            file.write_text(str(running[name].pid))
        else:
            file.unlink(missing_ok=True)
            rotate(layout.log(name))  # kwokctl truncates it, and it says why the member died
    kwokctl.run(layout, tools, "start", "cluster")


def _answers(layout: Layout, port: int) -> bool:
    probe = Probe(port, layout.workdir / "pki")
    deadline = time.monotonic() + WEDGED_SECONDS
    while not probe.usable():
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
        if not dead and probe.usable():
            return
        if dead:
            deaths.update(dead)
            _give_up_on_the_dying(layout, deaths)
            progress("restarting " + ", ".join(dead))
            _start_missing(layout, tools)
        if time.monotonic() > deadline:
            what = f"not ready after {READY_SECONDS:.0f} s: {last_line(layout.log(APISERVER))}"
            raise Failure("embedded control plane", what, f"see {layout.paths.logs}")
        time.sleep(0.05)


def _give_up_on_the_dying(layout: Layout, deaths: Counter[str]) -> None:
    name, times = deaths.most_common(1)[0]
    if times < DEATHS:
        return
    said = last_line(layout.log(name))
    end_members(layout)
    remedy = f"see {layout.log(name)}; to start from scratch, without its data: gpuform local stop --delete"
    raise Failure("embedded control plane", f"{name} exits as soon as it is started: {said}", remedy)
