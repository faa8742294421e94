"""``gpuform destroy``: delete a stack's resources."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from gpuform.checkout.paths import Paths
from gpuform.cli.output import AsJson, say, warn
from gpuform.cli.settling import settling


def destroy(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; still shows the plan.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Without Karpenter: terminate its instances, and remove its finalizers."
        ),
    ] = False,
    cluster_gone: Annotated[
        bool,
        typer.Option(
            "--cluster-gone",
            help="Drop the cluster's objects from the state, if EKS confirms that the cluster is gone.",
        ),
    ] = False,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Use the state of the stack's offline runs; contacts no cloud."),
    ] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete volumes with their data.")] = False,
    wait: Annotated[
        float | None,
        typer.Option(min=0, help="Maximum seconds to wait in each step, instead of the step's own limit."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete everything that a stack made, in a safe order; shows the plan first, and asks.

    Without a terminal and without --yes nothing is done, and the exit code is 1.
    """
    from gpuform.checkout.stacks import declared
    from gpuform.clouds import stack_teardown
    from gpuform.engine import Engine
    from gpuform.engine.pending import GIVEN_UP
    from gpuform.stack.destroy import Destroy, Options, Outcome
    from lab.toolchain import Toolchain

    paths = Paths.here()
    env = declared(stack, paths)
    tell = warn if as_json else say
    engine = Engine(paths, Toolchain(paths), say=warn, offline=offline)
    options = Options(offline, force, cluster_gone, purge, wait)
    target = stack_teardown(env, paths, engine, stack, options, say=tell)
    plan = target.plan()
    for text in plan.lines():
        tell(text)
    agreed = plan.nothing or yes or (not as_json and _agreed(stack))
    done = Outcome(stack).to_json() if plan.nothing else {}
    if agreed and not plan.nothing:
        # A cluster that Magnum is still creating can be deleted.
        if left := [one for one in engine.interrupted(stack) if one.kind != GIVEN_UP]:
            settling(stack, paths, engine, at_cloud=not offline, say=tell)(left)
            target = stack_teardown(env, paths, engine, stack, options, say=tell)  # the state has changed
            plan = target.plan()
        done = Destroy(target, plan).run().to_json()
    if as_json:
        typer.echo(json.dumps({"plan": plan.to_json(), "done": agreed, **done}, indent=2))
    if not agreed:
        warn(f"nothing was done; 'gpuform destroy {stack} --yes' does it")
        raise typer.Exit(1)
    if not plan.nothing:
        tell(f"{stack}: destroyed")


def _agreed(stack: str) -> bool:
    if not sys.stdin.isatty():
        return False
    asked = f"This cannot be undone. Type the stack's name to destroy it ({stack})"
    return str(typer.prompt(asked, default="no", show_default=False)) == stack
