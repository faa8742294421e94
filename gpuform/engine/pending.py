"""Operations that an interrupted run has left pending in the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.listing import abbreviate

CREATING, UPDATING, IMPORTING = "creating", "updating", "importing"
GIVEN_UP = "waiting for Magnum"
"""Not an operation of the engine: Magnum took the request, and the provider's wait ended in an error."""
MAGNUM = "openstack:containerinfra/"
RELEASE = "kubernetes:helm.sh/v3:Release"
FIELD_MANAGER = "__fieldManager"
"""An output of the Kubernetes provider."""
_SHOWN = 3


@dataclass(frozen=True)
class Operation:
    """An operation that was begun and never ended; ``resource`` is its state entry, inputs included."""

    kind: str
    resource: Mapping[str, Any]

    @property
    def urn(self) -> str:
        return str(self.resource["urn"])

    @property
    def type(self) -> str:
        return str(self.resource["type"])

    @property
    def name(self) -> str:
        return self.urn.rpartition("::")[2]


def operations(state: Mapping[str, Any]) -> list[Operation]:
    """The pending operations of a state as `pulumi stack export` prints it, in its order.

    Includes resources with inputs but no outputs, which `gpuform recover` imported and could not read, and
    resources of Magnum with ``initErrors``, which may have become ready since.
    """
    latest = state.get("deployment") or {}
    pending = [Operation(item["type"], item["resource"]) for item in latest.get("pending_operations") or ()]
    resources = latest.get("resources") or ()
    unread = [Operation(IMPORTING, item) for item in resources if _is_unread(item)]
    given_up = [Operation(GIVEN_UP, item) for item in resources if _is_given_up(item)]
    return [*pending, *unread, *given_up]


def _is_given_up(resource: Mapping[str, Any]) -> bool:
    of_magnum = str(resource["type"]).startswith(MAGNUM)
    return (
        of_magnum
        and bool(resource.get("initErrors"))
        and not (resource.get("taint") or resource.get("delete"))
    )


def _is_unread(resource: Mapping[str, Any]) -> bool:
    has_inputs = bool(resource.get("custom") and resource.get("id") and resource.get("inputs"))
    return has_inputs and not {*(resource.get("outputs") or ())} - {FIELD_MANAGER}


def require_none(state: Mapping[str, Any], stack: str, destroyed: bool = False) -> None:
    """Raise Failure if a killed run was creating a resource: the next run would create it again or orphan it.

    A resource being updated or deleted is in the state, and the next run resumes it. One that waits for
    Magnum can be ``destroyed``; an update would diff it against the provider's old reading, and might replace
    it.
    """
    blocking = (CREATING, IMPORTING) if destroyed else (CREATING, IMPORTING, GIVEN_UP)
    pending = [operation for operation in operations(state) if operation.kind in blocking]
    if not pending:
        return
    names = abbreviate([f"{operation.name} ({operation.type})" for operation in pending], _SHOWN)
    raise Failure(
        f"stack {stack}",
        f"an interrupted run was creating {names}, which may exist already",
        f"run 'gpuform recover {stack}' to look for it",
    )
