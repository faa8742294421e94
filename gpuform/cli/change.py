"""What finds and ends what differs from a stack file: ``gpuform recover``, ``destroy`` and ``drift``."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import AsJson, Stack, confirm, console, say, show, start_command, warn, working
from gpuform.cli.up import runs_here, settler, up
from gpuform.engine import Engine
from gpuform.engine.pending import GIVEN_UP
from lab.plane import ControlPlane
from lab.toolchain import Toolchain


def recover(
    stack: Stack,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Carry the plan out without asking.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use the state of the stack's offline runs.")
    ] = False,
    as_json: AsJson = False,
    owner_is_gone: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PID of a lock's process on another host; you confirm that it has ended."),
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
    """Clean up after an interrupted update; shows a plan, asks, then applies it.

    The plan removes stale locks, and settles pending operations and Helm releases.
    Exit code 0 if nothing is left, 1 if something is left or a run is active on the stack, 2 for bad input.
    """
    from gpuform.clouds import RECOVERIES
    from gpuform.reports import stack as texts
    from gpuform.stack import recover as recovery

    paths = Paths.here(stack)
    env = load_environment(stack, paths)
    offline = offline and not env.is_simulated
    imports = dict(_parse_import(text) for text in made or ())
    ended_owners, not_created = tuple(owner_is_gone or ()), tuple(never_made or ())
    decisions = recovery.UserDecisions(ended_owners, imports, not_created, renew_kubeconfig)
    engine = Engine(paths, Toolchain(paths), say=warn, offline=offline)
    target = recovery.Stack(stack, paths, engine, RECOVERIES, at_cloud=not offline)
    plan = recovery.find(target, decisions)
    if not as_json:
        for part in texts.recover_parts(plan):
            console.print(part)
    confirmed = plan.has_work and (yes or (not as_json and confirm("Carry out this plan? Type 'yes'", "yes")))
    if confirmed:
        recovery.carry_out(target, plan, say=warn if as_json else say)
    if as_json:
        typer.echo(json.dumps({**plan.to_json(), "done": confirmed}, indent=2))
    if plan.has_work and not confirmed:
        warn(f"nothing was done; 'gpuform recover {stack} --yes' does it")
    if confirmed and plan.steps and not plan.is_decided:
        warn("the state stays as it was until every operation in it is decided")
    for item in plan.manual_items:
        warn(f"left to you: {getattr(item, 'name', item.urn)}: {item.why}")
    if plan.manual_items or (plan.has_work and not confirmed):
        raise typer.Exit(1)


def _parse_import(text: str) -> tuple[str, str]:
    name, _, id = text.partition("=")
    if not name or not id:
        raise InputError("--import", f"{text!r} is not NAME=ID", "write it as NAME=ID")
    return name, id


def destroy(
    stack: Stack,
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
    """Delete everything that a stack created, in a safe order; shows a plan and asks.

    A control plane on this machine is deleted with its stack, unless namespaces stay on it.
    Without a terminal and without --yes nothing is done, and the exit code is 1.
    """
    from gpuform.clouds import stack_teardown
    from gpuform.stack.destroy import Destroy, Options, Outcome

    paths = Paths.here(stack)
    env = load_environment(stack, paths)
    offline = offline and not env.is_simulated
    print_line = warn if as_json else say
    engine = Engine(paths, Toolchain(paths), say=warn, offline=offline)
    plane = ControlPlane(paths, Toolchain(paths)) if runs_here(env, offline) else None
    if plane and plane.has_data:
        plane.start_for(env, print_line)
    elif plane:
        engine.forget(stack)  # what is recorded went with the control plane
    options = Options(offline, force, cluster_gone, purge, wait)
    target = stack_teardown(env, paths, engine, stack, options, say=print_line)
    plan = target.plan()
    for text in plan.text_lines():
        print_line(text)
    question = f"This cannot be undone. Type the stack's name to destroy it ({stack})"
    confirmed = plan.is_empty or yes or (not as_json and confirm(question, stack, show_default=False))
    outcome = Outcome(stack).to_json() if plan.is_empty else {}
    if confirmed and not plan.is_empty:
        # A cluster that Magnum is still creating can be deleted.
        if pending := [operation for operation in engine.interrupted(stack) if operation.kind != GIVEN_UP]:
            settler(stack, paths, engine, at_cloud=not offline, say=print_line)(pending)
            # The state has changed.
            target = stack_teardown(env, paths, engine, stack, options, say=print_line)
            plan = target.plan()
        with working(f"destroying {stack}"):
            outcome = Destroy(target, plan).run().to_json()
    if confirmed and plane and not plan.kept_namespaces:
        plane.stop(delete=True)
    if as_json:
        typer.echo(json.dumps({"plan": plan.to_json(), "done": confirmed, **outcome}, indent=2))
    if not confirmed:
        warn(f"nothing was done; 'gpuform destroy {stack} --yes' does it")
        raise typer.Exit(1)
    if not plan.is_empty:
        print_line(f"{stack}: destroyed")


def drift(
    stack: Stack,
    as_json: AsJson = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Undo what was found, as `up --refresh` does; then look again.")
    ] = False,
) -> None:
    """Show what was changed by hand since the last `up`; without --repair, nothing is changed.

    Exit code 0 without drift, 3 with drift, 1 if it cannot be determined, 2 for bad input.
    """
    from gpuform.clouds import cloud_of
    from gpuform.reports import stack as texts
    from gpuform.stack.drift.run import find_drift, no_resources, remove_added_keys

    paths = Paths.here(stack)
    env = load_environment(stack, paths)
    cloud, tools = cloud_of(env), Toolchain(paths)
    plane = ControlPlane(paths, tools)
    if env.is_simulated and not plane.has_data:
        raise no_resources(stack)
    if env.is_simulated and not plane.status().ready:
        fact, remedy = "its control plane does not run", f"start it with `{start_command(stack)}`"
        raise Failure(f"cluster of {stack}", fact, remedy)
    with working(f"looking for drift in {stack}"):
        found = find_drift(env, cloud.drift, cloud.access, paths, tools, stack, say=warn)
    repaired = found if repair and found.findings else None
    if repaired:
        if not as_json:
            show(False, None, [texts.drift_table(found), ""])
        remove_added_keys(env, cloud.access, paths, tools, stack, found)
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            up(stack, refresh=True, yes=True)
        with working(f"looking for drift in {stack}"):
            found = find_drift(env, cloud.drift, cloud.access, paths, tools, stack, say=warn)
    show(as_json, found.to_json(), texts.drift_parts(found, repaired))
    if found.findings:
        raise typer.Exit(3)
