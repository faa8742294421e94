"""Executes a plan, part by part; each part first checks that nothing has changed meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from gpuform.checkout.errors import Failure, OperationError
from gpuform.engine.pending import IMPORTING
from gpuform.stack.recover import cluster, locks, releases
from gpuform.stack.recover import state as states
from gpuform.stack.recover.find import Stack
from gpuform.stack.recover.plan import MANUAL, Plan, Step

Say = Callable[[str], None]


def carry_out(stack: Stack, plan: Plan, say: Say) -> None:
    """Execute ``plan`` and report each action; what the plan leaves to the user stays.

    The state is written as a whole, so it stays unchanged while a single operation is left to the user.
    Raises Failure if something has changed meanwhile, and if the cluster or the engine answer with an error;
    the same command continues from there.
    """
    for line in locks.remove_locks(stack.lock_store(), plan.locks, stack.name):
        say(line)
    if any(release.does != MANUAL for release in plan.releases):
        for line in asyncio.run(_resolve_releases(stack, plan)):
            say(line)
    if plan.steps and plan.is_decided:
        _resolve_state(stack, plan, say)


async def _resolve_releases(stack: Stack, plan: Plan) -> list[str]:
    state = stack.engine.deployment(stack.env, stack.name, show_secrets=True)
    by_urn = {resource["urn"]: resource for resource in states.resources(state)}
    by_urn |= {
        operation["resource"]["urn"]: operation["resource"]
        for operation in state["deployment"].get("pending_operations") or ()
    }
    lines = []
    async with cluster.open_clusters(state, stack.env) as clusters:
        for release in plan.releases:
            if release.does == MANUAL:
                continue
            resource = by_urn[release.urn]
            if others := stack.lock_store().list_locks():
                raise Failure(
                    f"stack {stack.name}", f"was locked meanwhile by {others[0].owner_name}", "wait for it"
                )
            try:
                helm, folder = stack.engine.tool("helm"), stack.paths.state / "helm"
                lines.append(
                    await releases.resolve_release(clusters.client_for(resource), release, helm, folder)
                )
            except OperationError as problem:
                raise Failure(f"release {release.id}", str(problem), "run the same command again") from None
    return lines


def _resolve_state(stack: Stack, plan: Plan, say: Say) -> None:
    state = stack.engine.deployment(stack.env, stack.name)
    states.require_planned(plan, state)
    new_state, to_refresh = states.apply_steps(state, plan.steps)
    if new_state != state:
        command = ("stack", "import", "--stack", stack.name)
        stack.engine.run_pulumi(stack.env, *command, stdin=json.dumps(new_state))
    if to_refresh:
        stack.engine.refresh(stack.name, on_event=lambda event: None, targets=to_refresh)
    missing = _missing(stack, plan)
    for step in plan.steps:
        if step in missing:
            continue
        done = {
            "import": f"imported as {step.id}",
            "finish": "the next up continues it",
            "recreate": f"{step.why}; the next up replaces it",
            "clear": "cleared",
            "refresh": "refreshed",
            "renew": f"has a new kubeconfig; 'gpuform up {stack.name}' gives it to the other resources",
        }[step.does]
        say(f"{step.name} ({step.type}): {done}")
    if missing:
        raise Failure(
            f"stack {stack.name}",
            f"{', '.join(f'{step.name} ({step.type})' for step in missing)} was not found by its id"
            " and is no longer in the state",
            "run 'pulumi import TYPE NAME ID' with the right one before the next up creates another",
        )


def _missing(stack: Stack, plan: Plan) -> list[Step]:
    """Imported resources that are no longer in the state: a refresh removes those that it cannot read."""
    imported = [
        step
        for step in plan.steps
        if step.does in ("import", "finish", "renew") or step.interrupted_while == IMPORTING
    ]
    if not imported:
        return []
    resources = states.resources(stack.engine.deployment(stack.env, stack.name))
    urns = {resource["urn"] for resource in resources if not resource.get("delete")}
    return [step for step in imported if step.urn not in urns]
