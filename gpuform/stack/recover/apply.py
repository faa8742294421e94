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
    for line in locks.remove(stack.place(), plan.locks, stack.name):
        say(line)
    if any(one.does != MANUAL for one in plan.releases):
        for line in asyncio.run(_releases(stack, plan)):
            say(line)
    if plan.steps and plan.decided:
        _state(stack, plan, say)


async def _releases(stack: Stack, plan: Plan) -> list[str]:
    state = stack.engine.deployment(stack.env, stack.name, show_secrets=True)
    named = {one["urn"]: one for one in states.resources(state)}
    named |= {
        one["resource"]["urn"]: one["resource"] for one in state["deployment"].get("pending_operations") or ()
    }
    said = []
    async with cluster.opened(state, stack.env) as clusters:
        for release in plan.releases:
            if release.does == MANUAL:
                continue
            resource = named[release.urn]
            if others := stack.place().locks():
                raise Failure(
                    f"stack {stack.name}", f"was locked meanwhile by {others[0].named}", "wait for it"
                )
            try:
                helm, runs = stack.engine.tool("helm"), stack.paths.state / "helm"
                said.append(await releases.settle(clusters.of(resource), release, helm, runs))
            except OperationError as problem:
                raise Failure(f"release {release.id}", str(problem), "run the same command again") from None
    return said


def _state(stack: Stack, plan: Plan, say: Say) -> None:
    now = stack.engine.deployment(stack.env, stack.name)
    states.require_planned(plan, now)
    changed, again = states.edited(now, plan.steps)
    if changed != now:
        words = ("stack", "import", "--stack", stack.name)
        stack.engine.ask(stack.env, *words, given=json.dumps(changed))
    if again:
        stack.engine.refresh(stack.name, on_event=lambda event: None, targets=again)
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
            f"{', '.join(f'{one.name} ({one.type})' for one in missing)} was not found by its id"
            " and is no longer in the state",
            "run 'pulumi import TYPE NAME ID' with the right one before the next up creates another",
        )


def _missing(stack: Stack, plan: Plan) -> list[Step]:
    """Imported resources that are no longer in the state: a refresh removes those that it cannot read."""
    imported = [
        one for one in plan.steps if one.does in ("import", "finish", "renew") or one.was == IMPORTING
    ]
    if not imported:
        return []
    now = states.resources(stack.engine.deployment(stack.env, stack.name))
    have = {one["urn"] for one in now if not one.get("delete")}
    return [one for one in imported if one.urn not in have]
