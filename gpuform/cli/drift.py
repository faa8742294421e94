"""``gpuform drift``: changes made outside the stack file."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gpuform.checkout.paths import Paths
from gpuform.cli.output import AsJson, console, warn


def drift(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")],
    as_json: AsJson = False,
) -> None:
    """Show what was changed by hand since the last `up`; changes neither resources nor state.

    Exit code 0 without drift, 3 with drift, 1 if it cannot be determined, 2 for bad input.
    """
    from gpuform.checkout.stacks import declared
    from gpuform.clouds import cloud_of
    from gpuform.reports import stack as report
    from gpuform.stack.drift.run import find_drift
    from lab.toolchain import Toolchain

    paths = Paths.here()
    env = declared(stack, paths)
    cloud = cloud_of(env)
    found = find_drift(env, cloud.drift, cloud.access, paths, Toolchain(paths), stack, say=warn)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        for part in report.drift(found):
            console.print(part)
    if found.findings:
        raise typer.Exit(3)
