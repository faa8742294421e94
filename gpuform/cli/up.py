"""``gpuform up``: preflight of the account or project, then the engine's update."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.output import Acknowledge, caution, console, require_passed, say, warn
from gpuform.cli.settling import run_up

LOCAL = "local"


def up(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Contact no cloud: every answer is simulated.")
    ] = False,
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
    from gpuform.checkout.stacks import declared
    from gpuform.engine import Engine, EngineFailure
    from gpuform.engine.checkpoint import guarded
    from infra.plan.losses import may_go
    from lab.plane import ControlPlane
    from lab.toolchain import Toolchain

    paths = Paths.here()
    env = declared(stack, paths)
    if stack == LOCAL:
        raise InputError("STACK", f"{LOCAL!r} runs on the embedded control plane", "use `gpuform local up`")
    caution(env)
    if not offline and not skip_preflight:
        require_passed(env, paths, stack, console)
    packs = [folder.resolve() for folder in policy_pack or ()]
    tools = Toolchain(paths)
    if offline or env.simulated:
        plane = ControlPlane(paths, tools)
        if not offline or plane.status().ready:  # an offline run needs no cluster
            plane.start_for(env, say)
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
