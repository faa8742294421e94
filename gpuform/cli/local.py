"""``gpuform local``: the embedded control planes of this project's stacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gpuform.checkout.errors import InputError
from gpuform.checkout.listing import abbreviate
from gpuform.checkout.paths import MAIN_STACK, Paths
from gpuform.checkout.stacks import load_environment, stack_file
from gpuform.cli.output import Acknowledge, AsJson, Offline, Operator, say, show, warn
from gpuform.cli.up import Refresh, monitoring_lines
from gpuform.cli.up import up as update
from gpuform.engine import Engine, engine_env, export_lines, forget_stacks, require_forgettable
from gpuform.engine.locks import Locked
from gpuform.reports import tables
from gpuform.stack import project
from infra.config import load
from infra.model.base.fields import listing
from infra.model.environment import Environment
from lab.plane import ControlPlane, Status, stacks_with_planes
from lab.toolchain import Toolchain

local = typer.Typer(
    no_args_is_help=True, help="Start, stop and inspect the control planes on this machine, one per stack."
)
LocalStack = Annotated[str, typer.Argument(help="Stack of the control plane: Pulumi.STACK.yaml.")]


@local.command()
def start(
    stack: LocalStack = MAIN_STACK,
    port: Annotated[int | None, typer.Option(help="Port of the API server; a free one by default.")] = None,
) -> None:
    """Start the stack's control plane, or repair it; changes nothing if all of it runs."""
    paths = Paths.here(stack)
    stack_file(stack, paths)
    plane = _control_plane(paths)
    plane.start(port=port, progress=say)
    if environment := _load_valid(paths):
        plane.start_for(environment, say)


@local.command()
def stop(
    stack: Annotated[
        str | None, typer.Argument(help="Only the control plane of this stack; default: of every stack.")
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also delete the data; of every stack, the Pulumi state, too.")
    ] = False,
) -> None:
    """Stop every process that was started for this checkout; data stays unless --delete.

    --delete is refused, and nothing is stopped, while a stack elsewhere keeps its state here.
    """
    paths = Paths.here()
    stacks = stacks_with_planes(paths)
    if stack is not None and stack not in stacks:
        raise InputError("STACK", f"{stack!r} has no control plane here", listing(stacks, stack))
    if delete and stack is None:
        require_forgettable(paths)
    planes = [_control_plane(Paths.here(name)) for name in (stacks if stack is None else (stack,))]
    for plane in planes:
        plane.stop(delete=delete)
    if delete and stack is None:
        forget_stacks(paths)
    if delete or not any(plane.has_data for plane in planes):
        say("stopped, data deleted" if delete else "stopped; there is no data")
        return
    again = "`gpuform local up`" if stack in (None, MAIN_STACK) else f"`gpuform local start {stack}`"
    say(f"stopped; the data stays, and {again} continues from it")


@local.command()
def status(stack: LocalStack = MAIN_STACK, as_json: AsJson = False) -> None:
    """Show the control plane's members: process, port, memory. Exit code 1 if one does not run."""
    paths = Paths.here(stack)
    stacks = stacks_with_planes(paths)
    if stack not in stacks:  # a control plane outlives a deleted stack file
        stack_file(stack, paths)
    current = _control_plane(paths).status()
    document = {**asdict(current), "kubeconfig": str(current.kubeconfig)}
    show(as_json, document, [_members_table(current)])
    for line in monitoring_lines(current) if not as_json else ():
        say(line)
    others = [name for name in stacks if name != stack]
    if others and not as_json:
        say(f"other control planes of this project: {abbreviate(others)}")
    if not current.running:
        raise typer.Exit(1)


@local.command()
def env(stack: LocalStack = MAIN_STACK, offline: Offline = False) -> None:
    """Print shell lines that set up pulumi and kubectl for use by hand: eval "$(gpuform local env)"."""
    paths = Paths.here(stack)
    stack_file(stack, paths)
    environment = _load_valid(paths)
    offline = offline and not (environment and environment.is_simulated)
    tools = Toolchain(paths)
    plane = _control_plane(paths)
    try:
        # This creates the stack, so that `pulumi preview` works before the first `pulumi up`.
        Engine(paths, tools, say=warn, offline=offline).prepare(stack)
    except Locked as locked:
        if not paths.kubeconfig.exists():
            raise
        warn(f"{locked.subject}: {locked.fact}; until it ends, only read")
    else:
        if plane.status().ready and environment and (offline or environment.is_simulated):
            plane.start_for(environment, warn)
    typer.echo(export_lines(engine_env(paths, tools, stack, offline)))


@local.command()
def nodes(
    stack: Annotated[str, typer.Argument(help="Name of a stack on AWS or OpenStack: Pulumi.STACK.yaml.")],
) -> None:
    """Create simulated nodes for a stack that is run offline; repeat after a change of its stack file."""
    from lab.rehearse.nodes import apply_nodes

    paths = Paths.here(stack)
    environment = load_environment(stack, paths)
    counts = apply_nodes(environment, paths, Toolchain(paths))
    _control_plane(paths).start_for(environment, say)
    say("; ".join(f"{pool}: {count}" for pool, count in counts.items()))


@local.command()
def up(
    stack: LocalStack = MAIN_STACK,
    acknowledge: Acknowledge = None,
    refresh: Refresh = False,
    operator: Annotated[
        Operator | None,
        typer.Option(help="NVIDIA's own GPU operator and NFD, or simulated ones, the default."),
    ] = None,
) -> None:
    """Run `gpuform up STACK`, by default for the stack local; in an empty folder, write a project first."""
    try:
        Paths.here()
    except InputError:
        if stack != MAIN_STACK or any(Path.cwd().iterdir()):
            raise
        files = project.program_files(Path.cwd(), "local")
        project.write(Path.cwd(), files)
        say(f"wrote {', '.join(files)}: a project with the stack local")
    if operator:
        paths = Paths.here(stack)
        if not load_environment(stack, paths).is_simulated:
            remedy = f"rehearse it: `gpuform rehearse {stack} --operator {operator}`"
            raise InputError("--operator", f"stack {stack} does not run on this machine", remedy)
        _control_plane(paths).choose_operator(operator == "real", say)
    update(stack, acknowledge=acknowledge, refresh=refresh)


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


def _load_valid(paths: Paths) -> Environment | None:
    """The stack's environment; None if its file is missing or invalid: its next reader reports that."""
    try:
        return load(paths.root / f"Pulumi.{paths.stack}.yaml")
    except (InputError, OSError):
        return None


def _control_plane(paths: Paths) -> ControlPlane:
    return ControlPlane(paths, Toolchain(paths))
