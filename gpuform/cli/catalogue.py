"""``gpuform gpus`` and ``gpuform schema``: what can be declared."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gpuform.cli.output import console, say


def gpus(as_json: Annotated[bool, typer.Option("--json", help="The catalogue as JSON.")] = False) -> None:
    """Show the catalogue: memory, MIG profiles, and the machines that have each GPU, with prices."""
    from gpuform.reports.catalogue import entries, table
    from infra.model.prices import DATE

    catalogue = entries()
    if as_json:
        typer.echo(json.dumps(catalogue, indent=2))
        return
    console.print(table(catalogue))
    say(f"prices: EC2 on-demand, us-east-1, {DATE}; machines outside this list have no price")


def schema() -> None:
    """Print the JSON Schema of a stack file."""
    from infra.schema import schema_text

    typer.echo(schema_text(), nl=False)
