"""Resumes an interrupted run before an `up`, if nothing has to be decided by the user."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuform.engine.pending import CREATING, GIVEN_UP, IMPORTING, RELEASE, UPDATING, Operation
from gpuform.stack.recover.apply import Say, carry_out
from gpuform.stack.recover.cluster import PREFIX as KUBERNETES
from gpuform.stack.recover.find import Stack, find
from gpuform.stack.recover.plan import MANUAL, Plan

_LOOK_S = 2.0


def resume(stack: Stack, pending: Sequence[Operation], say: Say) -> Plan | None:
    """Resolve an interrupted run if every operation is decided; else leave it.

    Waits for a release that is still being installed, and for a cloud's operations in progress. The engine
    then refuses to run on what is left, and names `gpuform recover`. Returns the plan that was executed.
    Errors as `find`.
    """
    clouds = tuple(one.prefix for one in stack.recoveries if one.resumes)
    making = any(
        one.kind in (CREATING, IMPORTING, GIVEN_UP) and one.type.startswith((KUBERNETES, *clouds))
        for one in pending
    )
    upgrading = any(one.kind == UPDATING and one.type.startswith((RELEASE, *clouds)) for one in pending)
    if not (making or upgrading):
        return None
    plan = _quiet(stack, say)
    if not plan.steps or not plan.decided or plan.locks or plan.left:
        return None
    say(f"stack {stack.name}: resumes an interrupted run")
    carry_out(stack, plan, say)
    return plan


def _quiet(stack: Stack, say: Say) -> Plan:
    """The plan once no pending release is young and nothing is in progress at a cloud.

    The run's own provider may still be working on a young release.
    """
    began, said = time.monotonic(), ""
    while True:
        plan = find(stack)
        young = [one for one in plan.releases if one.does == MANUAL]
        busy = [one for one in plan.steps if one.busy_s]
        bound = max(one.busy_s for one in busy) if busy else stack.quiet_s + 2 * _LOOK_S
        waiting = [f"release {one.id}: {one.status}" for one in young]
        waiting += [f"{one.name}: {one.why.partition(';')[0]}" for one in busy]
        if not waiting or time.monotonic() - began >= bound:
            return plan
        if waiting[0] != said:
            said = waiting[0]
            say(f"{said}; waits up to {bound:.0f} s")
        time.sleep(_LOOK_S)
