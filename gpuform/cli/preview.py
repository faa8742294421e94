"""``gpuform preview``: what a change would do, for its author and for the comment on a pull request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout import writable
from gpuform.checkout.paths import Paths
from gpuform.cli.output import Acknowledge, AsJson, console, warn


def preview(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Contact no cloud: every answer of the clouds is simulated.")
    ] = False,
    base: Annotated[
        str | None,
        typer.Option(
            help="Commit or folder of a checkout to compare with (offline); default: an empty stack."
        ),
    ] = None,
    summary: Annotated[
        Path | None, typer.Option(help="File for the summary in Markdown, as a comment on a pull request.")
    ] = None,
    as_json: AsJson = False,
    acknowledge: Acknowledge = None,
) -> None:
    """Show what `up` would change, which pods it evicts, what it costs, and which policies it breaks.

    Exit code 1 if it must not be merged: a broken policy, over the budget, a loss that is not acknowledged.
    """
    from gpuform.clouds import CLOUDS, cloud_of
    from gpuform.reports import stack as report
    from gpuform.reports.pull_request import markdown
    from gpuform.stack.preview.run import Preview
    from lab.rehearse.preview_base import played
    from lab.toolchain import Toolchain

    paths = Paths.here()
    if summary is not None:
        writable.require(summary.parent, "name a writable file with --summary")
    accepted = tuple(acknowledge or ())
    rules = [cloud.preview for cloud in CLOUDS.values()]
    tools = Toolchain(paths)
    found = Preview(
        paths, tools, stack, rules, offline, base, accepted, warn, played, lambda env: cloud_of(env).access
    ).run()
    if summary is not None:
        summary.write_text(markdown(found), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        for part in report.preview(found):
            console.print(part)
    if found.reasons:
        raise typer.Exit(1)
