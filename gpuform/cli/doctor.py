"""``gpuform doctor``: check this machine and a stack's account."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from gpuform.checkout.paths import Paths
from gpuform.cli.output import caution, console, say


def doctor(
    stack: Annotated[
        str | None, typer.Argument(help="Also check this stack's account: Pulumi.STACK.yaml.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
) -> None:
    """Check what this machine and a stack's account have and lack, with the command that fixes it.

    Nothing is changed. Exit code 1 if a check failed.
    """
    from gpuform.checkout.stacks import declared
    from gpuform.cli.machine import findings
    from gpuform.clouds import cloud_of
    from gpuform.reports import tables
    from gpuform.stack.preflight import run_checks

    paths = Paths.here()
    env = declared(stack, paths) if stack is not None else None
    found = list(findings(paths))
    if stack is not None and env is not None:
        caution(env)
        found += run_checks(cloud_of(env).preflight, env, paths, stack)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        console.print(tables.findings(found))
        for line in tables.by_hand(found):
            say(line)
    if any(finding.verdict == "FAIL" for finding in found):
        raise typer.Exit(1)
