"""The engine's state of a stack: its resources, and how a plan changes it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.engine.pending import CREATING, FIELD_MANAGER, MAGNUM
from gpuform.stack.recover.plan import Plan, Step

# How the engine writes a secret into JSON: apitype.Secret, after sdk/go/common/resource (`SigKey`).
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_BEGUN = "an earlier run was interrupted before this was done"


def resources(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The state's resources, in the engine's order."""
    listed: list[dict[str, Any]] = (state.get("deployment") or {}).get("resources") or []
    return listed


def reveal_secrets(value: Any) -> Any:
    """A value of an export with ``--show-secrets``, with its secrets in plain text: never for display."""
    if isinstance(value, Mapping):
        if _SIGNATURE in value:
            text = value.get("plaintext")
            return reveal_secrets(json.loads(text)) if isinstance(text, str) else None
        return {key: reveal_secrets(item) for key, item in value.items()}
    return [reveal_secrets(item) for item in value] if isinstance(value, list) else value


def ids_of_type(state: Mapping[str, Any], type: str) -> set[str]:
    """Ids that the state has for a type: these resources are not the missing one.

    Without one that was deleted and awaits its replacement (``pendingReplacement``): its replacement may have
    its name.
    """
    return {
        str(resource.get("id"))
        for resource in resources(state)
        if resource["type"] == type and not resource.get("pendingReplacement")
    }


def provider_inputs(state: Mapping[str, Any], resource: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of a resource's provider; empty if the state does not have it."""
    urn, _, id = str(resource.get("provider") or "").rpartition("::")
    for resource in resources(state):
        if resource["urn"] == urn and resource.get("id") == id:
            inputs: dict[str, Any] = reveal_secrets(resource.get("inputs") or {})
            return inputs
    return {}


def apply_steps(state: Mapping[str, Any], steps: Sequence[Step]) -> tuple[dict[str, Any], list[str]]:
    """The state after the plan, and the URNs that must then be read again.

    The engine's own `refresh --import-pending-creates` (3.256) marks an operation as an import and then
    forgets it without reading anything, so a created resource is added to the resources here. It has its
    inputs; its outputs come with the refresh. If it was to replace another, that one is marked for deletion,
    as the engine would have done; it takes the place of one that was deleted first (``pendingReplacement``),
    or the next run would delete by the old one's id, which may be the new one's name. No operation is pending
    after that: `pulumi stack import` keeps none. The Kubernetes provider continues with the field manager in
    its state; another one would be in conflict with that of the interrupted run.

    What is to be made anew is tainted, as by `pulumi state taint`. What is to be finished gets an
    initialisation error: the engine updates such a resource even if its inputs equal the program's. It is not
    read again, for the engine would forget the error.
    """
    changed = copy.deepcopy(dict(state))
    deployment = changed["deployment"]
    existing = deployment.setdefault("resources", [])
    imported = {step.urn: step for step in steps if step.does == "import"}
    unfinished = {step.urn: step.id for step in steps if step.does == "finish"}
    renewed = {step.urn for step in steps if step.does == "renew"}
    failed = {step.urn: step.id for step in steps if step.does == "recreate"}
    for operation in deployment.pop("pending_operations", None) or ():
        resource = operation["resource"]
        if resource["urn"] in imported:
            step = imported.pop(resource["urn"])
            outputs = {FIELD_MANAGER: step.manager} if step.manager else {}
            added = {**resource, "id": step.id, "outputs": outputs}
            _add_resource(existing, _marked_unread(added) if resource["type"].startswith(MAGNUM) else added)
        elif resource["urn"] in unfinished | failed and operation["type"] == CREATING:
            id = (unfinished | failed)[resource["urn"]]
            _add_resource(existing, {**resource, "id": id, "outputs": resource.get("inputs") or {}})
    for resource in existing:
        if resource["urn"] in failed and not resource.get("delete"):
            resource |= {"taint": True, "protect": False}  # the engine replaces no protected resource
        if resource["urn"] in renewed and not resource.get("delete"):
            resource.update(_marked_unread(resource))
        if resource["urn"] in unfinished and not resource.get("delete"):
            resource["initErrors"] = [_BEGUN]
    return changed, [step.urn for step in steps if step.does in ("import", "refresh", "renew")]


def _marked_unread(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A Magnum resource with its inputs as outputs and an initialisation error, so that it is read again.

    The provider does not read ``mergeLabels``, and would replace a cluster that has none.
    """
    return {**resource, "outputs": resource.get("inputs") or {}, "initErrors": [_BEGUN]}


def _add_resource(existing: list[dict[str, Any]], added: dict[str, Any]) -> None:
    """Add a created resource: in the place of one that was deleted for it, else at the end."""
    position = None
    for index, replaced in enumerate(existing):
        if replaced["urn"] == added["urn"] and replaced.get("pendingReplacement"):
            position = index
        elif replaced["urn"] == added["urn"]:
            replaced["delete"] = True
    if position is None:
        existing.append(added)
    else:
        existing[position] = added


def is_same_state(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two exports are of the same state, ignoring secrets: one may show them, one may not."""
    return bool(_shape(first) == _shape(second))


def _shape(state: Mapping[str, Any]) -> Any:
    deployment = state.get("deployment") or {}
    return _without_secrets([deployment.get(key) or [] for key in ("resources", "pending_operations")])


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {} if _SIGNATURE in value else value
        return {key: _without_secrets(item) for key, item in kept.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def require_planned(plan: Plan, now: Mapping[str, Any]) -> None:
    if not is_same_state(plan.state, now):
        raise Failure(f"stack {plan.stack}", "its state has changed meanwhile", "run the same command again")
