"""``gpuform toolchain``: the pinned tools, where they come from, and their cache."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuform.checkout.paths import Paths
from gpuform.cli.local_tables import tools as tools_table
from gpuform.cli.output import console, say
from lab.toolchain import Toolchain
from lab.toolchain.catalogue import CATALOGUE, GATE, MAIN_JOB

app = typer.Typer(
    no_args_is_help=True, help="The pinned tools: found on PATH, downloaded and checked, or built."
)


@app.command()
def build(
    tools: Annotated[
        list[str] | None, typer.Argument(help="Names of tools; default: what `make up` runs.")
    ] = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="Also the tools of `make test`; takes four more minutes.")
    ] = False,
    tests: Annotated[
        bool,
        typer.Option("--tests", help="All tools, as `make test-all` needs them; takes fifteen more minutes."),
    ] = False,
) -> None:
    """Get every missing tool; other checkouts use them from the cache."""
    names = tools or (CATALOGUE if tests else GATE if gate else MAIN_JOB)
    Toolchain(Paths.here()).ensure(*names, progress=say)


@app.command(name="list")
def list_tools() -> None:
    """Show each tool, its version and where it comes from."""
    toolchain = Toolchain(Paths.here())
    console.print(tools_table([toolchain.locate(name) for name in CATALOGUE]))


@app.command()
def clean() -> None:
    """Empty the cache of tools. Go's own build cache is left alone."""
    freed = Toolchain(Paths.here()).clean()
    say(f"freed {freed / 1e6:.0f} MB")
