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

_POLL_S = 2.0


def resume(stack: Stack, pending: Sequence[Operation], say: Say) -> Plan | None:
    """Resolve an interrupted run if every operation is decided; else leave it.

    Waits for a release that is still being installed, and for a cloud's operations in progress. The engine
    then refuses to run on what is left, and names `gpuform recover`. Returns the plan that was executed.
    Errors as `find`.
    """
    clouds = tuple(recovery.prefix for recovery in stack.recoveries if recovery.resumes)
    making = any(
        operation.kind in (CREATING, IMPORTING, GIVEN_UP) and operation.type.startswith((KUBERNETES, *clouds))
        for operation in pending
    )
    upgrading = any(
        operation.kind == UPDATING and operation.type.startswith((RELEASE, *clouds)) for operation in pending
    )
    if not (making or upgrading):
        return None
    plan = _wait_until_quiet(stack, say)
    if not plan.steps or not plan.is_decided or plan.locks or plan.manual_items:
        return None
    say(f"stack {stack.name}: resumes an interrupted run")
    carry_out(stack, plan, say)
    return plan


def _wait_until_quiet(stack: Stack, say: Say) -> Plan:
    """The plan once no pending release is young and nothing is in progress at a cloud.

    The run's own provider may still be working on a young release.
    """
    began, printed = time.monotonic(), ""
    while True:
        plan = find(stack)
        unsettled = [release for release in plan.releases if release.does == MANUAL]
        busy = [step for step in plan.steps if step.busy_s]
        limit_s = max(step.busy_s for step in busy) if busy else stack.quiet_s + 2 * _POLL_S
        waiting = [f"release {release.id}: {release.status}" for release in unsettled]
        waiting += [f"{step.name}: {step.why.partition(';')[0]}" for step in busy]
        if not waiting or time.monotonic() - began >= limit_s:
            return plan
        if waiting[0] != printed:
            printed = waiting[0]
            say(f"{printed}; waits up to {limit_s:.0f} s")
        time.sleep(_POLL_S)


def retry_after_cloud(
    stack: Stack, failure: EngineFailure, run: Callable[[], Result], say: Callable[[str], None]
) -> Result:
    """Repeat ``run`` after its ``failure``, once the cloud has done what its provider gave up.

    Each resource is retried once. Raises EngineFailure with the cloud's own reason if the cloud failed, and
    any other failure unchanged.
    """
    retried: set[tuple[str, str]] = set()
    failures: list[EngineFailure] = []
    while True:
        steps = {(step.op, step.urn) for step in failure.result.steps if step.phase == "failed"}
        errors = "\n".join(failure.result.errors)
        clouds = [item for item in stack.recoveries if item.wait_error and item.wait_error in errors]
        new_steps = {step for step in steps if any(cloud.prefix in step[1] for cloud in clouds)} - retried
        if not new_steps:
            raise failure
        if reason := _wait_for_clouds(stack, {urn for op, urn in new_steps if op.startswith("delete")}, say):
            raise EngineFailure(failure.result, reason, failure.remedy) from None
        retried |= new_steps
        failures.append(failure)
        try:
            return run().after(past.result for past in failures)
        except EngineFailure as next_failure:
            failure = next_failure


def _wait_for_clouds(stack: Stack, deleting: set[str], say: Callable[[str], None]) -> str:
    """Wait for the clouds; returns why one did not do what was requested, empty if all did."""
    state = stack.engine.deployment(stack.env, stack.name, show_secrets=True)
    resources = [
        resource for resource in states.resources(state) if resource["urn"] in deleting and resource.get("id")
    ]
    clouds = [(recovery_of(stack.recoveries, resource["type"]), resource) for resource in resources]
    reasons = [reason for cloud, item in clouds if cloud and (reason := cloud.wait_deleted(item, state, say))]
    if given_up := [operation for operation in operations(state) if operation.kind == GIVEN_UP]:
        if (plan := resume(stack, given_up, say)) is None:
            return "; ".join((*reasons, "the cloud has not finished"))
        recreated = (step for step in plan.steps if step.does == "recreate")
        reasons += [f"{step.name}: {step.why}; the next up creates it again" for step in recreated]
    return "; ".join(reasons)
