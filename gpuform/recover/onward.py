"""Goes on after an interrupted run before an `up`, where nothing is guessed: at Magnum and in clusters."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuform.engine.pending import CREATING, RELEASE, UPDATING, Operation
from gpuform.engine.standins import resuming
from gpuform.recover.apply import Say, carry_out
from gpuform.recover.cluster import PREFIX as KUBERNETES
from gpuform.recover.find import Stack, find
from gpuform.recover.openstack import PREFIX as MAGNUM
from gpuform.recover.plan import FOR_YOU, Plan

_LOOK_S = 2.0


def go_on(stack: Stack, pending: Sequence[Operation], say: Say) -> None:
    """Settle what an interrupted run was making, if that is decided for every operation; else leave it.

    A release that is still being installed is waited for. What is left, the engine then refuses to run on,
    and names `gpuform recover`. Nothing is done where the provider itself goes on with it, as our stand-in
    of the OpenStack provider does beside the checkout. Errors as `find`.
    """
    beside = stack.engine.environment(stack.name)[1] is None
    skipped = beside and MAGNUM in resuming(stack.paths)
    clouds = (KUBERNETES,) if skipped else (KUBERNETES, MAGNUM)
    making = any(one.kind == CREATING and one.type.startswith(clouds) for one in pending)
    upgrading = any(one.kind == UPDATING and one.type == RELEASE for one in pending)
    if not (making or upgrading):
        return
    plan = _quiet(stack, say)
    if plan.steps and plan.decided and not plan.locks and not plan.left:
        say(f"stack {stack.name}: goes on where an interrupted run ended")
        carry_out(stack, plan, say)


def _quiet(stack: Stack, say: Say) -> Plan:
    """The plan once no release is young and pending: the run's own provider may be at work on it."""
    end = time.monotonic() + stack.quiet_s + 2 * _LOOK_S
    plan, told = find(stack), False
    while time.monotonic() < end:
        left = [one for one in plan.releases if one.does == FOR_YOU]
        if not left:
            break
        if not told:
            say(f"release {left[0].id}: {left[0].status}; waits up to {stack.quiet_s} s for what is at work")
            told = True
        time.sleep(_LOOK_S)
        plan = find(stack)
    return plan
