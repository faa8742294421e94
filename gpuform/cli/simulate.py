"""``gpuform simulate``: what happens to the hardware of simulated nodes."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gpuform.cli.output import say
from gpuform.paths import Paths

app = typer.Typer(
    no_args_is_help=True, help="What happens to the hardware of the embedded cluster's simulated nodes."
)


@app.callback()
def simulate() -> None:
    """Nothing here reaches a real node."""


@app.command()
def health(
    node: Annotated[str, typer.Argument(help="Name of a simulated node.")],
    gpu: Annotated[int, typer.Option(help="Index of the GPU, from 0.")],
    ok: Annotated[bool, typer.Option("--ok", help="It is well again; the device plugin restarts.")] = False,
) -> None:
    """Make a GPU sick: it stays in the node's capacity, is not allocatable, and pods that have it keep it."""
    from gpuform.simulate import health as change

    for line in asyncio.run(change(Paths.here().kubeconfig, node, gpu, ok)):
        say(line)
