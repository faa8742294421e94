"""Resumes an interrupted run, if nothing has to be decided by the user.

Before an `up`, and within an engine run in which a cloud's provider gives up before the cloud is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gpuform.engine import EngineFailure, Result
from gpuform.engine.pending import CREATING, GIVEN_UP, IMPORTING, RELEASE, UPDATING, Operation, operations
from gpuform.stack.recover import state as states
from gpuform.stack.recover.apply import Say, carry_out
from gpuform.stack.recover.cluster import PREFIX as KUBERNETES
from gpuform.stack.recover.find import Stack, find
from gpuform.stack.recover.plan import MANUAL, Plan, recovery_of

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


def run_to_the_end(
    stack: Stack, failure: EngineFailure, run: Callable[[], Result], say: Callable[[str], None]
) -> Result:
    """Repeat ``run`` after its ``failure``, once the cloud has done what its provider gave up.

    Each resource is retried once. Raises EngineFailure with the cloud's own reason if the cloud failed, and
    any other failure unchanged.
    """
    forgiven: set[tuple[str, str]] = set()
    failures: list[EngineFailure] = []
    while True:
        steps = {(one.op, one.urn) for one in failure.result.steps if one.phase == "failed"}
        said = "\n".join(failure.result.errors)
        clouds = [one for one in stack.recoveries if one.wait_error and one.wait_error in said]
        new = {step for step in steps if any(cloud.prefix in step[1] for cloud in clouds)} - forgiven
        if not new:
            raise failure
        if why := _failures(stack, {urn for op, urn in new if op.startswith("delete")}, say):
            raise EngineFailure(failure.result, why, failure.remedy) from None
        forgiven |= new
        failures.append(failure)
        try:
            return run().after(one.result for one in failures)
        except EngineFailure as another:
            failure = another


def _failures(stack: Stack, deleting: set[str], say: Callable[[str], None]) -> str:
    """Wait for the clouds; returns why one did not do what was requested, empty if all did."""
    state = stack.engine.deployment(stack.env, stack.name, show_secrets=True)
    left = [one for one in states.resources(state) if one["urn"] in deleting and one.get("id")]
    clouds = [(recovery_of(stack.recoveries, one["type"]), one) for one in left]
    said = [why for cloud, one in clouds if cloud and (why := cloud.wait_deleted(one, state, say))]
    if given_up := [one for one in operations(state) if one.kind == GIVEN_UP]:
        if (plan := resume(stack, given_up, say)) is None:
            return "; ".join((*said, "the cloud has not finished"))
        again = (step for step in plan.steps if step.does == "recreate")
        said += [f"{step.name}: {step.why}; the next up creates it again" for step in again]
    return "; ".join(said)
