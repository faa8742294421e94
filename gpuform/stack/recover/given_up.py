"""Continues engine runs in which the OpenStack provider gives up before Magnum is done.

The provider polls as soon as Magnum's API has answered, but the conductor begins later: the provider takes an
object that is not stored yet for deleted, and an operation that has not begun for refused
(terraform-provider-openstack 3.4, containerinfra_shared_v1.go, and the StateChangeConf of each operation).
"""

from __future__ import annotations

from collections.abc import Callable

from gpuform.engine import EngineFailure, Result
from gpuform.engine.pending import GIVEN_UP, operations
from gpuform.stack.recover import openstack
from gpuform.stack.recover import state as states
from gpuform.stack.recover.find import Stack
from gpuform.stack.recover.onward import go_on
from gpuform.stack.recover.plan import Plan

_SAID = "Error waiting for openstack_containerinfra_"
"""How each of the provider's errors of that kind begins."""


def run_to_the_end(
    stack: Stack, failure: EngineFailure, run: Callable[[], Result], say: Callable[[str], None]
) -> Result:
    """Repeat ``run`` after its ``failure``, once Magnum has done what the provider gave up.

    Each resource is retried once. Raises EngineFailure with Magnum's own reason if Magnum failed, and any
    other failure unchanged.
    """
    forgiven: set[tuple[str, str]] = set()
    failures: list[EngineFailure] = []
    while True:
        steps = {(one.op, one.urn) for one in failure.result.steps if one.phase == "failed"}
        new = {one for one in steps if openstack.PREFIX in one[1]} - forgiven
        if not new or not any(_SAID in text for text in failure.result.errors):
            raise failure
        if why := _ended_badly(stack, {urn for op, urn in new if op.startswith("delete")}, say):
            raise EngineFailure(failure.result, why, failure.remedy) from None
        forgiven |= new
        failures.append(failure)
        try:
            return run().after(one.result for one in failures)
        except EngineFailure as another:
            failure = another


def _ended_badly(stack: Stack, deleting: set[str], say: Callable[[str], None]) -> str:
    """Wait for Magnum; returns why it did not do what was requested, empty if it did."""
    state = stack.engine.deployment(stack.env, stack.name, show_secrets=True)
    left = [one for one in states.resources(state) if one["urn"] in deleting and one.get("id")]
    said = [why for one in left if (why := openstack.ended(one, state, say))]
    given_up = [one for one in operations(state) if one.kind == GIVEN_UP]
    if given_up:
        said += _failed(go_on(stack, given_up, say))
    return "; ".join(said)


def _failed(plan: Plan | None) -> list[str]:
    if plan is None:
        return ["Magnum has not finished"]
    again = [step for step in plan.steps if step.does == "recreate"]
    return [f"{step.name}: {step.why}; the next up creates it again" for step in again]
