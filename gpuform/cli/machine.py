"""What is about this machine alone: ``gpuform doctor``, ``simulate``, ``prices`` and ``toolchain``."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import MAIN_STACK, Paths
from gpuform.checkout.placeholders import require_own_values
from gpuform.checkout.stacks import load_environment, stack_file
from gpuform.cli.output import (
    AsJson,
    Stack,
    console,
    print_warnings,
    require_passed,
    say,
    show,
    start_command,
)
from gpuform.engine import plugins
from gpuform.reports import tables
from infra.model.environment import Environment
from infra.strict_yaml import short_path
from lab.plane import ControlPlane
from lab.toolchain import Toolchain, space
from lab.toolchain.catalogue import CATALOGUE, GATE, MAIN_JOB

if TYPE_CHECKING:
    from gpuform.stack.preflight.check import Finding

_SOURCES = {
    "path": "from PATH",
    "official": "official",
    "built": "built from its Go module",
}


def doctor(
    stack: Annotated[
        str | None, typer.Argument(help="Also check this stack's account: Pulumi.STACK.yaml.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine and a stack's account; print fixes.

    Nothing is changed. Exit code 1 if a check failed.
    """
    from gpuform.clouds import cloud_of
    from gpuform.stack.preflight import run_checks

    paths = Paths.anywhere() if stack is None else Paths.here(stack)
    env = load_environment(stack, paths) if stack is not None else None
    all_findings = list(check_machine(paths, env))
    if stack is not None and env is not None:
        print_warnings(env)
        require_own_values(env)
        all_findings += run_checks(cloud_of(env).preflight, env, paths, stack)
    shown = tables.condensed(all_findings)
    show(as_json, [asdict(finding) for finding in all_findings], [tables.findings_table(shown)])
    passed, failed = (sum(one.verdict == verdict for one in all_findings) for verdict in ("PASS", "FAIL"))
    total = f"{passed} of {len(all_findings)} checks passed, {failed} failed"
    for line in [*tables.manual_checks(shown), total] if not as_json else ():
        say(line)
    if failed:
        raise typer.Exit(1)


def preflight(stack: Stack) -> None:
    """Check a stack's account; `pulumi up` by hand does so before it starts.

    Prints on stderr what did not pass, since stdout is pulumi's, and nothing for a stack that has no account.
    """
    paths = Paths.here(stack)
    env = load_environment(stack, paths)
    require_own_values(env)
    require_passed(env, paths, stack, Console(stderr=True, highlight=False))


def check_machine(paths: Paths, env: Environment | None) -> Iterator[Finding]:
    """Check the machine, for this stack if one is given; changes nothing and builds nothing."""
    from gpuform.stack.preflight.check import Finding

    toolchain = Toolchain(paths)
    yield Finding("python", "PASS", ".".join(map(str, sys.version_info[:3])))
    try:
        space.require_space(paths.cache, *toolchain.modules_to_build(*MAIN_JOB))
    except InputError as error:
        yield Finding("disk", "FAIL", error.fact, error.remedy)
    else:
        yield Finding("disk", "PASS", "enough space")
    for name in MAIN_JOB:
        tool = toolchain.locate(name)
        if tool.path is None:
            yield Finding(name, "FAIL", f"{tool.version} is missing", "gpuform toolchain build")
        else:
            yield Finding(name, "PASS", f"{tool.version}, {_SOURCES[tool.source]}")
    for plugin in plugins(paths):
        if plugin.official:
            yield Finding(plugin.name, "PASS", f"official: {plugin.official}")
        elif plugin.source:
            yield Finding(plugin.name, "SKIP", f"not installed; built from {plugin.source}")
        else:
            yield Finding(plugin.name, "SKIP", "not installed; the project's own stand-in is used")
    status = ControlPlane(paths, toolchain).status()
    if status.ready:
        yield Finding("control plane", "PASS", f"Kubernetes {status.kubernetes} at {status.server}")
    elif env is None or env.is_simulated:
        yield Finding("control plane", "SKIP", "not running", start_command(paths.stack))


simulate = typer.Typer(no_args_is_help=True, help="Inject and clear hardware faults of simulated nodes.")
Node = Annotated[str, typer.Argument(help="Name of a simulated node.")]
OfStack = Annotated[str, typer.Option("--stack", help="Stack on this machine that has the node.")]


@simulate.command()
def health(
    node: Node,
    gpu: Annotated[int, typer.Option(help="Index of the GPU, from 0.")],
    ok: Annotated[
        bool, typer.Option("--ok", help="Make it healthy again; restarts the device plugin.")
    ] = False,
    stack: OfStack = MAIN_STACK,
) -> None:
    """Make a GPU unhealthy or healthy; an unhealthy one is not allocatable, and pods that hold it keep it."""
    from lab.plane.gpu_faults import set_health as change

    for line in asyncio.run(change(_simulated_cluster(stack), node, gpu, ok)):
        say(line)


@simulate.command()
def fault(
    node: Node,
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
    stack: OfStack = MAIN_STACK,
) -> None:
    """Inject one hardware fault into a simulated node, or clear its faults."""
    from lab.plane.gpu_faults import FaultRequest
    from lab.plane.gpu_faults import change_fault as change
    from lab.simulator import faults

    chosen = {
        faults.ECC: ecc,
        faults.GPU_LOST: gpu_lost,
        faults.THERMAL: thermal,
        faults.POWER: power,
        faults.NVLINK: nvlink,
        faults.ROW_REMAP: row_remap,
        faults.FABRIC: fabric_manager,
        faults.EXPORTER_DOWN: exporter_down,
    }
    request = FaultRequest(node, gpu, tuple(kind for kind, on in chosen.items() if on), xid, clear)
    for line in asyncio.run(change(_simulated_cluster(stack), request)):
        say(line)


def _simulated_cluster(stack: str) -> Path:
    """Kubeconfig of the stack's control plane. Raises InputError for an unknown stack."""
    paths = Paths.here(stack)
    stack_file(stack, paths)
    if not paths.kubeconfig.is_file():
        raise Failure(f"control plane of {stack}", "has never been started", f"run `{start_command(stack)}`")
    return paths.kubeconfig


prices = typer.Typer(no_args_is_help=True, help="Refresh the dated price list that all costs use.")


@prices.command()
def refresh(region: Annotated[str, typer.Argument(help="AWS region, for example us-west-2.")]) -> None:
    """Fetch AWS's list prices of a region with your credentials (pricing:GetProducts) into the project.

    Commit the file: costs of stacks in that region then use it.
    """
    from gpuform.clients.aws.api import create_client, translate_errors
    from gpuform.clients.aws.prices import fetch_prices, save_prices

    paths = Paths.here()
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", region):
        raise InputError("REGION", f"{region!r} is not an AWS region", "write it as us-west-2")
    with translate_errors("AWS Price List API"):
        client = create_client("pricing", "us-east-1")
        price_list = fetch_prices(client, region, datetime.now(UTC).date().isoformat(), say)
    if not price_list["usd_per_hour"]:
        raise Failure("AWS Price List API", f"has no machine in {region}", "check the region's name")
    file = save_prices(paths.prices, price_list)
    say(f"{len(price_list['usd_per_hour'])} machines in {short_path(file)}")


toolchain = typer.Typer(no_args_is_help=True, help="Build, list and clean the pinned tools.")


@toolchain.command()
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
    """Download or build missing tools, into a cache that all checkouts share."""
    names = tools or (CATALOGUE if tests else GATE if gate else MAIN_JOB)
    Toolchain(Paths.anywhere()).ensure(*names, progress=say)


@toolchain.command(name="list")
def list_tools() -> None:
    """Show each tool, its version and where it comes from."""
    all_tools = map(Toolchain(Paths.anywhere()).locate, CATALOGUE)
    rows = ((tool.name, tool.version, tool.source, str(tool.path or "-")) for tool in all_tools)
    console.print(tables.build_table("Tools", ("tool", "version", "from", "path"), rows))


@toolchain.command()
def clean() -> None:
    """Empty the cache of tools. Go's own build cache is left alone."""
    freed = Toolchain(Paths.anywhere()).clean()
    say(f"freed {freed / 1e6:.0f} MB")
