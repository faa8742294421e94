"""What changes a stack: ``gpuform up``, ``recover`` and ``destroy``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import (
    Acknowledge,
    AsJson,
    Offline,
    Stack,
    confirm,
    console,
    print_warnings,
    require_passed,
    say,
    warn,
)
from gpuform.engine import Engine, EngineFailure, Result
from gpuform.engine.checkpoint import guard_records
from gpuform.engine.pending import GIVEN_UP, Operation
from lab.plane import ControlPlane
from lab.toolchain import Toolchain

LOCAL = "local"
Say = Callable[[str], None]


def settler(
    stack: str, paths: Paths, engine: Engine, at_cloud: bool, say: Say
) -> Callable[[Sequence[Operation]], object]:
    """A function that settles operations of an interrupted run, or given up by a provider."""

    def settle(pending: Sequence[Operation]) -> object:
        from gpuform.clouds import RECOVERIES
        from gpuform.stack import recover as recovery

        return recovery.resume(recovery.Stack(stack, paths, engine, RECOVERIES, at_cloud), pending, say)

    return settle


def run_up(
    engine: Engine,
    stack: str,
    paths: Paths,
    at_cloud: bool,
    say: Say,
    packs: Sequence[Path] = (),
    acknowledged: Sequence[str] = (),
) -> Result:
    """Run ``Engine.up`` after settling what is left; at a cloud, again once the cloud has done its part."""
    settle = settler(stack, paths, engine, at_cloud, say)

    def run() -> Result:
        return engine.up(stack, policy_packs=packs, settle=settle, acknowledged=acknowledged)

    try:
        return run()
    except EngineFailure as failure:
        if not at_cloud:
            raise
        from gpuform.clouds import RECOVERIES
        from gpuform.stack import recover as recovery

        return recovery.retry_after_cloud(recovery.Stack(stack, paths, engine, RECOVERIES), failure, run, say)


def up(
    stack: Stack,
    offline: Offline = False,
    skip_preflight: Annotated[
        bool, typer.Option("--skip-preflight", help="Skip the preflight checks of the account.")
    ] = False,
    policy_pack: Annotated[
        list[Path] | None, typer.Option(help="Folder of a policy pack to enforce. May be repeated.")
    ] = None,
    acknowledge: Acknowledge = None,
) -> None:
    """Make the stack match its file, after a preflight of the account or project.

    Exit code 1 if a check fails (see `gpuform doctor STACK`), or if a cluster, data or running pods would be
    lost without --acknowledge; then nothing is changed.
    """
    from infra.plan.losses import may_lose
    from lab.rehearse import nodes

    paths = Paths.here()
    env = load_environment(stack, paths)
    if stack == LOCAL:
        raise InputError("STACK", f"{LOCAL!r} runs on the embedded control plane", "use `gpuform local up`")
    print_warnings(env)
    if not offline and not skip_preflight:
        require_passed(env, paths, stack, console)
    packs = [folder.resolve() for folder in policy_pack or ()]
    tools = Toolchain(paths)
    simulated_cloud = offline and nodes.simulated_nodes(env).by_cloud
    if simulated_cloud or env.is_simulated:
        ControlPlane(paths, tools).start_for(env, say)
    if simulated_cloud:
        nodes.apply_nodes(env, paths, tools)
    engine = Engine(paths, tools, say=say, offline=offline)
    accepted = (*env.acknowledge_loss, *(acknowledge or ()))
    try:
        if may_lose(guard_records(engine.export(stack)), env):
            # What is in the cluster is judged only once the cluster is up to date: refuse before that.
            engine.preview(stack, lambda event: None, acknowledged=accepted)
        result = run_up(engine, stack, paths, not offline, say, packs, accepted)
    except EngineFailure as failure:
        for error in failure.result.errors[1:]:  # a pipeline keeps what is printed, and not the engine's log
            warn(error)
        raise
    say(result.summary)


def recover(
    stack: Stack,
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
    from gpuform.clouds import RECOVERIES
    from gpuform.reports import stack as texts
    from gpuform.stack import recover as recovery

    paths = Paths.here()
    load_environment(stack, paths)
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
    """Delete everything that a stack made, in a safe order; shows the plan first, and asks.

    Without a terminal and without --yes nothing is done, and the exit code is 1.
    """
    from gpuform.clouds import stack_teardown
    from gpuform.stack.destroy import Destroy, Options, Outcome

    paths = Paths.here()
    env = load_environment(stack, paths)
    print_line = warn if as_json else say
    engine = Engine(paths, Toolchain(paths), say=warn, offline=offline)
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
        outcome = Destroy(target, plan).run().to_json()
    if as_json:
        typer.echo(json.dumps({"plan": plan.to_json(), "done": confirmed, **outcome}, indent=2))
    if not confirmed:
        warn(f"nothing was done; 'gpuform destroy {stack} --yes' does it")
        raise typer.Exit(1)
    if not plan.is_empty:
        print_line(f"{stack}: destroyed")
