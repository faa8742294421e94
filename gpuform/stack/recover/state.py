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
    found: list[dict[str, Any]] = (state.get("deployment") or {}).get("resources") or []
    return found


def plain(value: Any) -> Any:
    """A value of an export with ``--show-secrets``, with its secrets in plain text: never for display."""
    if isinstance(value, Mapping):
        if _SIGNATURE in value:
            text = value.get("plaintext")
            return plain(json.loads(text)) if isinstance(text, str) else None
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def ids(state: Mapping[str, Any], type: str) -> set[str]:
    """Ids that the state has for a type: these resources are not the missing one.

    Without one that was deleted and awaits its replacement (``pendingReplacement``): its replacement may have
    its name.
    """
    return {
        str(one.get("id"))
        for one in resources(state)
        if one["type"] == type and not one.get("pendingReplacement")
    }


def provider(state: Mapping[str, Any], resource: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of a resource's provider; empty if the state does not have it."""
    urn, _, id = str(resource.get("provider") or "").rpartition("::")
    for one in resources(state):
        if one["urn"] == urn and one.get("id") == id:
            found: dict[str, Any] = plain(one.get("inputs") or {})
            return found
    return {}


def edited(state: Mapping[str, Any], steps: Sequence[Step]) -> tuple[dict[str, Any], list[str]]:
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
    have = deployment.setdefault("resources", [])
    made = {step.urn: step for step in steps if step.does == "import"}
    begun = {step.urn: step.id for step in steps if step.does == "finish"}
    bare = {step.urn for step in steps if step.does == "renew"}
    failed = {step.urn: step.id for step in steps if step.does == "recreate"}
    for operation in deployment.pop("pending_operations", None) or ():
        resource = operation["resource"]
        if resource["urn"] in made:
            step = made.pop(resource["urn"])
            outputs = {FIELD_MANAGER: step.manager} if step.manager else {}
            put = {**resource, "id": step.id, "outputs": outputs}
            _put(have, _to_be_read(put) if resource["type"].startswith(MAGNUM) else put)
        elif resource["urn"] in begun | failed and operation["type"] == CREATING:
            id = (begun | failed)[resource["urn"]]
            _put(have, {**resource, "id": id, "outputs": resource.get("inputs") or {}})
    for resource in have:
        if resource["urn"] in failed and not resource.get("delete"):
            resource |= {"taint": True, "protect": False}  # the engine replaces no protected resource
        if resource["urn"] in bare and not resource.get("delete"):
            resource.update(_to_be_read(resource))
        if resource["urn"] in begun and not resource.get("delete"):
            resource["initErrors"] = [_BEGUN]
    return changed, [step.urn for step in steps if step.does in ("import", "refresh", "renew")]


def _to_be_read(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A Magnum resource with its inputs as outputs and an initialisation error, so that it is read again.

    The provider does not read ``mergeLabels``, and would replace a cluster that has none.
    """
    return {**resource, "outputs": resource.get("inputs") or {}, "initErrors": [_BEGUN]}


def _put(have: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """Add a created resource: in the place of one that was deleted for it, else at the end."""
    place = None
    for index, replaced in enumerate(have):
        if replaced["urn"] == made["urn"] and replaced.get("pendingReplacement"):
            place = index
        elif replaced["urn"] == made["urn"]:
            replaced["delete"] = True
    if place is None:
        have.append(made)
    else:
        have[place] = made


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two exports are of the same state, ignoring secrets: one may show them, one may not."""
    return bool(_shape(one) == _shape(other))


def _shape(state: Mapping[str, Any]) -> Any:
    deployment = state.get("deployment") or {}
    return _without_secrets([deployment.get(key) or [] for key in ("resources", "pending_operations")])


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {} if _SIGNATURE in value else value
        return {key: _without_secrets(item) for key, item in kept.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def require_planned(plan: Plan, now: Mapping[str, Any]) -> None:
    if not same(plan.state, now):
        raise Failure(f"stack {plan.stack}", "its state has changed meanwhile", "run the same command again")
