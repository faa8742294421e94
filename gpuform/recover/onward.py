"""Goes on after an interrupted run by itself where nothing is guessed: at OpenStack, before an `up`."""

from __future__ import annotations

from gpuform.engine.pending import CREATING, operations
from gpuform.engine.standins import resuming
from gpuform.recover.apply import Say, carry_out
from gpuform.recover.find import Stack, find
from gpuform.recover.openstack import PREFIX


def go_on(stack: Stack, say: Say) -> None:
    """Import or clear what was being made at Magnum, if that is decided for every operation; else leave it.

    What is left, the engine then refuses to run on, and names `gpuform recover`. Nothing is done where the
    provider itself goes on with it, as our stand-in does beside the checkout. Errors as `find`.
    """
    if stack.engine.environment(stack.name)[1] is None and PREFIX in resuming(stack.paths):
        return
    pending = operations(stack.engine.export(stack.name))
    if not any(one.kind == CREATING and one.type.startswith(PREFIX) for one in pending):
        return
    plan = find(stack)
    if plan.steps and plan.decided and not plan.locks and not plan.left:
        say(f"stack {stack.name}: goes on where an interrupted run ended")
        carry_out(stack, plan, say)
