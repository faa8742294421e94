"""Continues engine runs in which a cloud's provider gives up before the cloud is done."""

from __future__ import annotations

from collections.abc import Callable

from gpuform.engine import EngineFailure, Result
from gpuform.engine.pending import GIVEN_UP, operations
from gpuform.stack.recover import state as states
from gpuform.stack.recover.auto_recover import resume
from gpuform.stack.recover.find import Stack
from gpuform.stack.recover.recovery import recovery_of


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
