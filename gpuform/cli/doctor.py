"""``gpuform doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from gpuform.cli.output import console
from gpuform.paths import Paths


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
) -> None:
    """Say what this machine has and lacks, and the command that mends it. Exit code 1 if a check failed."""
    from gpuform.doctor import findings
    from gpuform.reports.tables import findings as table

    found = list(findings(Paths.here()))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        console.print(table(found))
    if any(finding.verdict == "FAIL" for finding in found):
        raise typer.Exit(1)
