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
from gpuform.checkout.stacks import load_environment, stack_file
from gpuform.cli.change import settler
from gpuform.cli.observe import read_facts
from gpuform.cli.output import Offline, Stack, console, say, short_path, warn
from gpuform.engine import Engine, engine_env, export_lines, forget_stacks, require_forgettable
from gpuform.reports import tables
from gpuform.usage.injected_faults import faulty_nodes, unsettled_pools
from gpuform.usage.status import ClusterStatus, read_status
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
    if environment := _load_here(STACK, offline=False):
        plane.start_for(environment, say)


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
        forget_stacks(Paths.here())
    say("stopped, data deleted" if delete else "stopped; the data stays, and `make up` continues from it")


@app.command()
def status() -> None:
    """Show the control plane's members: process, port, memory. Exit code 1 if one does not run."""
    current = _control_plane().status()
    console.print(_members_table(current))
    for line in monitoring_lines(current):
        say(line)
    if not current.running:
        raise typer.Exit(1)


@app.command()
def env(stack: Stack = STACK, offline: Offline = False) -> None:
    """Print shell lines that set up pulumi, kubectl and helm for use by hand: eval "$(gpuform local env)"."""
    paths = Paths.here()
    stack_file(stack, paths)
    tools = Toolchain(paths)
    # This creates the stack, so that `pulumi preview` works before the first `pulumi up`.
    Engine(paths, tools, say=warn, offline=offline).prepare(stack)
    plane = _control_plane()
    if plane.status().ready and (environment := _load_here(stack, offline)):
        plane.start_for(environment, warn)
    typer.echo(export_lines(engine_env(paths, tools, stack, offline)))


@app.command()
def nodes(
    stack: Annotated[str, typer.Argument(help="Name of a stack on AWS or OpenStack: Pulumi.STACK.yaml.")],
) -> None:
    """Create simulated nodes for a stack that is run offline; repeat after a change of its stack file."""
    from lab.rehearse.nodes import apply_nodes

    paths = Paths.here()
    environment = load_environment(stack, paths)
    counts = apply_nodes(environment, paths, Toolchain(paths))
    _control_plane().start_for(environment, say)
    say("; ".join(f"{pool}: {count}" for pool, count in counts.items()))


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
    result = engine.up(STACK, settle=settler(STACK, paths, engine, at_cloud=False, say=say))
    current = _wait_until_settled(environment, paths, SETTLE_S if result.changed else UNCHANGED_S)
    if waiting := _unsettled_names(current):
        say(f"pools {waiting} do not offer what was planned: refreshing the state")
        engine.refresh(STACK, on_event=lambda event: None)  # its events show others' changes as its own
        result = engine.up(STACK)
        current = _wait_until_settled(environment, paths, SETTLE_S)
    report = _write_report(environment, paths)
    console.print(tables.pools_table(current), "", tables.pods_table(current), "", sep="\n")
    say(f"{result.summary}; {time.monotonic() - began:.0f} s in all; report: {short_path(report)}")
    say(tables.SIMULATED)
    if environment.uses_packer:
        say(tables.PACKED)
    for line in monitoring_lines(plane.status()):
        say(line)
    for name, why in faulty_nodes(current).items():
        warn(f"node {name} does not offer what was planned, because a fault was injected: {why}")
    if waiting := _unsettled_names(current):
        raise Failure(
            f"pools {waiting}",
            f"do not offer what was planned after {SETTLE_S:.0f} s",
            f"see the nodes' events with kubectl, and {paths.logs / 'simulator.log'}",
        )


def _write_report(environment: Environment, paths: Paths) -> Path:
    from gpuform.reports.page import write_report

    report_facts = read_facts(environment, STACK, paths, paths.kubeconfig, None)
    return write_report(paths.state / "report", report_facts, paths.root)


def _wait_until_settled(environment: Environment, paths: Paths, seconds: float) -> ClusterStatus:
    """The cluster's status once every pool offers what was planned, or after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        current = read_status(environment, paths.kubeconfig)
        if not _unsettled_names(current) or time.monotonic() > deadline:
            return current
        time.sleep(0.3)


def _members_table(status: Status) -> Table:
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
    return tables.build_table(title, ("member", "pid", "port", "memory"), [*rows, ("all", "", "", total)])


def monitoring_lines(status: Status) -> Iterator[str]:
    """Prometheus's address, if it runs, and where monitoring differs from the declaration."""
    for member in status.members:
        if member.name == "prometheus" and member.running:
            yield (
                "Prometheus (real; the GPUs that it measures are simulated) answers: "
                f"http://127.0.0.1:{member.port}/api/v1/alerts"
            )
    yield from (f"monitoring: {line}" for line in status.sidecar_messages)


def _unsettled_names(current: ClusterStatus) -> str:
    return ", ".join(pool.name for pool in unsettled_pools(current))


def _load_here(stack: str, offline: bool) -> Environment | None:
    """The stack's environment if it runs on the embedded control plane (``offline``: any stack does).

    None if the stack file is missing or invalid; its next reader reports that.
    """
    try:
        environment = load(Paths.here().root / f"Pulumi.{stack}.yaml")
    except (InputError, OSError):
        return None
    return environment if offline or environment.is_simulated else None


def _control_plane() -> ControlPlane:
    paths = Paths.here()
    return ControlPlane(paths, Toolchain(paths))
