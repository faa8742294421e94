"""``gpuform local``: the embedded control plane and the stack that runs on it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gpuform.checkout import writable
from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import declared, file_of
from gpuform.cli.change import settling
from gpuform.cli.observe import facts
from gpuform.cli.output import Offline, Stack, console, say, short_path, warn
from gpuform.engine import Engine, engine_env, export_lines, forget, require_forgettable
from gpuform.reports import tables
from gpuform.usage.broken import faulty, unsettled
from gpuform.usage.status import ClusterStatus, read
from infra.config import load
from infra.model.environment import Environment
from lab.plane import ControlPlane, Status
from lab.toolchain import Toolchain
from lab.toolchain.catalogue import MAIN_JOB

STACK = "local"
SETTLE_S = 60.0  # a simulated operand acts within a second or two; a minute means that it never will
UNCHANGED_S = 5.0  # the same if the engine had nothing to do: operands of a restarted control plane come back

app = typer.Typer(no_args_is_help=True, help="The embedded control plane on this machine (simulated nodes).")


@app.command()
def start(
    port: Annotated[int | None, typer.Option(help="Port of the API server; a free one by default.")] = None,
) -> None:
    """Start the control plane, or repair it; changes nothing if all of it runs."""
    plane = _control_plane()
    plane.start(port=port, progress=say)
    if found := _here(STACK, offline=False):
        plane.start_for(found, say)


@app.command()
def stop(
    delete: Annotated[
        bool, typer.Option("--delete", help="Also delete the data and the Pulumi state.")
    ] = False,
) -> None:
    """Stop every process that was started for this checkout; data stays unless --delete.

    --delete is refused, and nothing is stopped, while a stack elsewhere keeps its state here.
    """
    if delete:
        require_forgettable(Paths.here())
    _control_plane().stop(delete=delete)
    if delete:
        forget(Paths.here())
    say("stopped, data deleted" if delete else "stopped; the data stays, and `make up` continues from it")


@app.command()
def status() -> None:
    """Show the control plane's members: process, port, memory. Exit code 1 if one does not run."""
    current = _control_plane().status()
    console.print(_members(current))
    for line in monitored(current):
        say(line)
    if not current.running:
        raise typer.Exit(1)


@app.command()
def env(stack: Stack = STACK, offline: Offline = False) -> None:
    """Print shell lines that set up pulumi, kubectl and helm for use by hand: eval "$(gpuform local env)"."""
    paths = Paths.here()
    file_of(stack, paths)
    tools = Toolchain(paths)
    # This creates the stack, so that `pulumi preview` works before the first `pulumi up`.
    Engine(paths, tools, say=warn, offline=offline).prepare(stack)
    plane = _control_plane()
    if plane.status().ready and (found := _here(stack, offline)):
        plane.start_for(found, warn)
    typer.echo(export_lines(engine_env(paths, tools, stack, offline)))


@app.command()
def nodes(
    stack: Annotated[str, typer.Argument(help="Name of a stack on AWS or OpenStack: Pulumi.STACK.yaml.")],
) -> None:
    """Create simulated nodes for a stack that is run offline; repeat after a change of its stack file."""
    from lab.rehearse.nodes import play

    paths = Paths.here()
    environment = declared(stack, paths)
    there = play(environment, paths, Toolchain(paths))
    _control_plane().start_for(environment, say)
    say("; ".join(f"{pool}: {count}" for pool, count in there.items()))


@app.command()
def up() -> None:
    """The main job: start the control plane, run `pulumi up` of the stack local, and show the result."""
    began = time.monotonic()
    paths = Paths.here()
    writable.require_state(paths.state)
    environment = load(paths.root / f"Pulumi.{STACK}.yaml")
    tools = Toolchain(paths)
    tools.ensure(*MAIN_JOB)
    plane = _control_plane()
    plane.start_for(environment, say)
    engine = Engine(paths, tools)
    result = engine.up(STACK, settle=settling(STACK, paths, engine, at_cloud=False, say=say))
    current = _settled(environment, paths, SETTLE_S if result.changed else UNCHANGED_S)
    if waiting := _unsettled(current):
        say(f"pools {waiting} do not offer what was planned: refreshing the state")
        engine.refresh(STACK, on_event=lambda event: None)  # its events show others' changes as its own
        result = engine.up(STACK)
        current = _settled(environment, paths, SETTLE_S)
    report = _report(environment, paths)
    console.print(tables.pools(current), "", tables.pods(current), "", sep="\n")
    say(f"{result.summary}; {time.monotonic() - began:.0f} s in all; report: {short_path(report)}")
    say(tables.SIMULATED)
    if environment.packs:
        say(tables.PACKED)
    for line in monitored(plane.status()):
        say(line)
    for name, why in faulty(current).items():
        warn(f"node {name} does not offer what was planned, because a fault was injected: {why}")
    if waiting := _unsettled(current):
        raise Failure(
            f"pools {waiting}",
            f"do not offer what was planned after {SETTLE_S:.0f} s",
            f"see the nodes' events with kubectl, and {paths.logs / 'simulator.log'}",
        )


def _report(environment: Environment, paths: Paths) -> Path:
    from gpuform.reports.page import write

    found = facts(environment, STACK, paths, paths.kubeconfig, None)
    return write(paths.state / "report", found, paths.root)


def _settled(environment: Environment, paths: Paths, seconds: float) -> ClusterStatus:
    """The cluster's status once every pool offers what was planned, or after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        current = read(environment, paths.kubeconfig)
        if not _unsettled(current) or time.monotonic() > deadline:
            return current
        time.sleep(0.3)


def _members(status: Status) -> Table:
    version = f"Kubernetes {status.kubernetes}, " if status.kubernetes else ""
    rows: list[Iterable[tables.Cell]] = [
        (
            member.name,
            str(member.pid) if member.running else ("not running", "red"),
            str(member.port or "-"),
            f"{member.rss_bytes / 2**20:.0f} MiB",
        )
        for member in status.members
    ]
    total = f"{sum(member.rss_bytes for member in status.members) / 2**20:.0f} MiB"
    title = f"Control plane: {version}{'ready' if status.ready else 'not ready'}"
    return tables.filled(title, ("member", "pid", "port", "memory"), [*rows, ("all", "", "", total)])


def monitored(status: Status) -> Iterator[str]:
    """Prometheus's address, if it runs, and where monitoring differs from the declaration."""
    for member in status.members:
        if member.name == "prometheus" and member.running:
            yield (
                "Prometheus (real; the GPUs that it measures are simulated) answers: "
                f"http://127.0.0.1:{member.port}/api/v1/alerts"
            )
    yield from (f"monitoring: {line}" for line in status.unmonitored)


def _unsettled(current: ClusterStatus) -> str:
    return ", ".join(pool.name for pool in unsettled(current))


def _here(stack: str, offline: bool) -> Environment | None:
    """The stack's environment if it runs on the embedded control plane (``offline``: any stack does).

    None if the stack file is missing or invalid; its next reader reports that.
    """
    try:
        found = load(Paths.here().root / f"Pulumi.{stack}.yaml")
    except (InputError, OSError):
        return None
    return found if offline or found.simulated else None


def _control_plane() -> ControlPlane:
    paths = Paths.here()
    return ControlPlane(paths, Toolchain(paths))
