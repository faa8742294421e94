"""``gpuform health``: nodes that are out of use because of their GPUs, and their tickets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.output import AsJson, answering, console, reach_cluster, say, short_path

if TYPE_CHECKING:
    from gpuform.usage.health import Seen
    from infra.model.health import Health

app = typer.Typer(no_args_is_help=True, help="Nodes with a broken GPU: what was done about them.")
Stack = Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")]


@app.command()
def status(stack: Stack = "local", as_json: AsJson = False) -> None:
    """Show the nodes that are out of use, and whether the health loop has stopped."""
    from gpuform.reports import stack as report

    health, seen = _look(stack)
    if as_json:
        typer.echo(json.dumps({"mode": health.mode, **seen.to_json()}, indent=2))
        return
    if seen.nodes:
        console.print(report.health(seen))
    for line in report.health_lines(seen, health.mode):
        say(line)


@app.command()
def tickets(
    stack: Stack = "local",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for one Markdown file per ticket.")
    ] = None,
) -> None:
    """Show the open tickets, or write them as files."""
    from gpuform.usage.health import write

    _, seen = _look(stack)
    opened = [one for one in seen.tickets if one.open]
    if output is None:
        for one in opened:
            typer.echo(one.files["ticket.md"])
    else:
        for file in write(opened, output):
            say(f"wrote {short_path(file)}")
    if not opened:
        say("no ticket is open")


def _look(stack: str) -> tuple[Health, Seen]:
    from gpuform.checkout.stacks import declared
    from gpuform.usage.health import fetch

    paths = Paths.here()
    env = declared(stack, paths)
    if env.health is None:
        raise InputError("health", f"stack {stack} does not declare it", "add health: {} to the stack file")
    with reach_cluster(env, paths, stack) as (kubeconfig, context), answering(stack, kubeconfig):
        return env.health, fetch(kubeconfig, context)
