"""What changes a stack: ``gpuform up``, ``recover`` and ``destroy``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import declared
from gpuform.cli.output import (
    Acknowledge,
    AsJson,
    Offline,
    Stack,
    caution,
    confirmed,
    console,
    require_passed,
    say,
    warn,
)
from gpuform.engine import Engine, EngineFailure, Result
from gpuform.engine.checkpoint import guarded
from gpuform.engine.pending import GIVEN_UP, Operation
from lab.plane import ControlPlane
from lab.toolchain import Toolchain

LOCAL = "local"
Say = Callable[[str], None]


def settling(
    stack: str, paths: Paths, engine: Engine, at_cloud: bool, say: Say
) -> Callable[[Sequence[Operation]], object]:
    """A function that settles operations of an interrupted run, or given up by a provider."""

    def settle(left: Sequence[Operation]) -> object:
        from gpuform.clouds import RECOVERIES
        from gpuform.stack import recover as recovery

        return recovery.resume(recovery.Stack(stack, paths, engine, RECOVERIES, at_cloud), left, say)

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
    settle = settling(stack, paths, engine, at_cloud, say)

    def run() -> Result:
        return engine.up(stack, policy_packs=packs, settle=settle, acknowledged=acknowledged)

    try:
        return run()
    except EngineFailure as failure:
        if not at_cloud:
            raise
        from gpuform.clouds import RECOVERIES
        from gpuform.stack import recover as recovery

        return recovery.run_to_the_end(recovery.Stack(stack, paths, engine, RECOVERIES), failure, run, say)


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
    from infra.plan.losses import may_go
    from lab.rehearse import nodes

    paths = Paths.here()
    env = declared(stack, paths)
    if stack == LOCAL:
        raise InputError("STACK", f"{LOCAL!r} runs on the embedded control plane", "use `gpuform local up`")
    caution(env)
    if not offline and not skip_preflight:
        require_passed(env, paths, stack, console)
    packs = [folder.resolve() for folder in policy_pack or ()]
    tools = Toolchain(paths)
    simulated_cloud = offline and nodes.of(env).by_cloud
    if simulated_cloud or env.simulated:
        ControlPlane(paths, tools).start_for(env, say)
    if simulated_cloud:
        nodes.play(env, paths, tools)
    engine = Engine(paths, tools, say=say, offline=offline)
    accepted = (*env.acknowledge_loss, *(acknowledge or ()))
    try:
        if may_go(guarded(engine.export(stack)), env):
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
    declared(stack, paths)
    words = dict(_pair(word) for word in made or ())
    gone, never = tuple(owner_is_gone or ()), tuple(never_made or ())
    decisions = recovery.UserDecisions(gone, words, never, renew_kubeconfig)
    engine = Engine(paths, Toolchain(paths), say=warn, offline=offline)
    here = recovery.Stack(stack, paths, engine, RECOVERIES, at_cloud=not offline)
    plan = recovery.find(here, decisions)
    if not as_json:
        for part in texts.recover(plan):
            console.print(part)
    agreed = plan.to_do and (yes or (not as_json and confirmed("Carry out this plan? Type 'yes'", "yes")))
    if agreed:
        recovery.carry_out(here, plan, say=warn if as_json else say)
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


def _pair(word: str) -> tuple[str, str]:
    name, _, id = word.partition("=")
    if not name or not id:
        raise InputError("--import", f"{word!r} is not NAME=ID", "write it as NAME=ID")
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
    env = declared(stack, paths)
    tell = warn if as_json else say
    engine = Engine(paths, Toolchain(paths), say=warn, offline=offline)
    options = Options(offline, force, cluster_gone, purge, wait)
    target = stack_teardown(env, paths, engine, stack, options, say=tell)
    plan = target.plan()
    for text in plan.lines():
        tell(text)
    asked = f"This cannot be undone. Type the stack's name to destroy it ({stack})"
    agreed = plan.nothing or yes or (not as_json and confirmed(asked, stack, show_default=False))
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
