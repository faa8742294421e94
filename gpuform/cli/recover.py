"""``gpuform recover``: clean up after an interrupted run."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.output import AsJson, console, say, warn


def recover(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Carry the plan out without asking.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use the state of the stack's offline runs.")
    ] = False,
    as_json: AsJson = False,
    owner_is_gone: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PID of a lock's owner on another host; you confirm that it has ended."),
    ] = None,
    made: Annotated[
        list[str] | None,
        typer.Option(
            "--import", help="NAME=ID of a resource that was created; the ID as for `pulumi import`."
        ),
    ] = None,
    never_made: Annotated[
        list[str] | None, typer.Option("--clear", help="NAME of a resource that was not created.")
    ] = None,
    renew_kubeconfig: Annotated[
        bool, typer.Option(help="Renew the cluster's kubeconfig: Magnum signs a new client certificate.")
    ] = False,
) -> None:
    """Find what an interrupted update left: stale locks, pending operations and Helm releases; show, then do.

    Exit code 0 if nothing is left, 1 if something is left or a run is active on the stack, 2 for bad input.
    """
    from gpuform.checkout.stacks import declared
    from gpuform.clouds import RECOVERIES
    from gpuform.engine import Engine
    from gpuform.reports import stack as report
    from gpuform.stack.recover import Stack, UserDecisions, carry_out, find
    from lab.toolchain import Toolchain

    paths = Paths.here()
    declared(stack, paths)
    words = dict(_pair(word) for word in made or ())
    decisions = UserDecisions(tuple(owner_is_gone or ()), words, tuple(never_made or ()), renew_kubeconfig)
    engine = Engine(paths, Toolchain(paths), say=warn, offline=offline)
    here = Stack(stack, paths, engine, RECOVERIES, at_cloud=not offline)
    plan = find(here, decisions)
    if not as_json:
        for part in report.recover(plan):
            console.print(part)
    agreed = plan.to_do and (yes or (not as_json and _agreed()))
    if agreed:
        carry_out(here, plan, say=warn if as_json else say)
    if as_json:
        typer.echo(json.dumps({**plan.to_json(), "done": agreed}, indent=2))
    if plan.to_do and not agreed:
        warn(f"nothing was done; 'gpuform recover {stack} --yes' does it")
    if agreed and plan.steps and not plan.decided:
        warn("the state stays as it was until every operation in it is decided")
    for one in plan.left:
        warn(f"left to you: {getattr(one, 'name', one.urn)}: {one.why}")
    if plan.left or (plan.to_do and not agreed):
        raise typer.Exit(1)


def _agreed() -> bool:
    if not _terminal():
        return False
    return str(typer.prompt("Carry out this plan? Type 'yes'", default="no")) == "yes"


def _terminal() -> bool:
    return sys.stdin.isatty()


def _pair(word: str) -> tuple[str, str]:
    name, _, id = word.partition("=")
    if not name or not id:
        raise InputError("--import", f"{word!r} is not NAME=ID", "write it as NAME=ID")
    return name, id
