"""``gpuform simulate``: hardware faults of simulated nodes."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gpuform.checkout.paths import Paths
from gpuform.cli.output import say

app = typer.Typer(no_args_is_help=True, help="Hardware faults of the embedded cluster's simulated nodes.")


@app.callback()
def simulate() -> None:
    """Nothing here reaches a real node."""


@app.command()
def health(
    node: Annotated[str, typer.Argument(help="Name of a simulated node.")],
    gpu: Annotated[int, typer.Option(help="Index of the GPU, from 0.")],
    ok: Annotated[
        bool, typer.Option("--ok", help="Make it healthy again; restarts the device plugin.")
    ] = False,
) -> None:
    """Make a GPU unhealthy: it stays in capacity, is not allocatable, and pods that hold it keep it."""
    from lab.plane.gpu_health import health as change

    for line in asyncio.run(change(Paths.here().kubeconfig, node, gpu, ok)):
        say(line)


@app.command()
def fault(
    node: Annotated[str, typer.Argument(help="Name of a simulated node.")],
    gpu: Annotated[int | None, typer.Option(help="Index of the GPU, from 0; default: 0.")] = None,
    xid: Annotated[int | None, typer.Option(help="The driver reports this XID once.")] = None,
    ecc: Annotated[bool, typer.Option("--ecc", help="Double-bit memory errors, each with XID 48.")] = False,
    gpu_lost: Annotated[bool, typer.Option("--gpu-lost", help="XID 79; the GPU's series disappear.")] = False,
    thermal: Annotated[bool, typer.Option("--thermal", help="The cooling fails; the GPU throttles.")] = False,
    power: Annotated[bool, typer.Option("--power", help="The power is limited; the GPU throttles.")] = False,
    nvlink: Annotated[bool, typer.Option("--nvlink", help="Errors on the NVLinks.")] = False,
    row_remap: Annotated[bool, typer.Option("--row-remap", help="A row cannot be remapped.")] = False,
    fabric_manager: Annotated[
        bool, typer.Option("--fabric-manager", help="The fabric manager of an NVSwitch board stops.")
    ] = False,
    exporter_down: Annotated[
        bool, typer.Option("--exporter-down", help="The node's dcgm-exporter crash-loops.")
    ] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="Clear all faults of the GPU, or of the whole node.")
    ] = False,
) -> None:
    """Inject one fault, to see how monitoring and the device plugin react."""
    from lab.plane.gpu_faults import Asked
    from lab.plane.gpu_faults import fault as change
    from lab.simulator import faults

    said = {
        faults.ECC: ecc,
        faults.GPU_LOST: gpu_lost,
        faults.THERMAL: thermal,
        faults.POWER: power,
        faults.NVLINK: nvlink,
        faults.ROW_REMAP: row_remap,
        faults.FABRIC: fabric_manager,
        faults.EXPORTER_DOWN: exporter_down,
    }
    asked = Asked(node, gpu, tuple(kind for kind, on in said.items() if on), xid, clear)
    for line in asyncio.run(change(Paths.here().kubeconfig, asked)):
        say(line)
