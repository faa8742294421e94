"""What a recovery needs from a cloud; resources belong to the cloud with the prefix of their type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from gpuform.engine.pending import Operation
from gpuform.stack.recover.plan import Does, Step

State = Mapping[str, Any]
"""An export of the stack's state, with its secrets in plain text."""


class Recovery(Protocol):
    """Lookups of interrupted operations; the defaults: the cloud is done when the call returns.

    Errors are those of the cloud's own client.
    """

    name: ClassVar[str]
    prefix: ClassVar[str]
    resumes: ClassVar[bool] = False
    """Whether `up` settles this cloud's interrupted operations by itself, without `gpuform recover`."""
    wait_error: ClassVar[str] = ""
    """How an error of the provider begins that ended its wait too early; empty if there is none."""

    def require_place(self, stack: str, state: State) -> None:
        """Raise Failure if the credentials are of an account or project in which the stack has nothing.

        There, no resource would be found: each would be created a second time, or removed from the state.
        """

    def lookup(self, operation: Operation, state: State) -> Step:
        """How to resolve one interrupted create. Raises Failure if two resources match."""

    def reread(self, operation: Operation, state: State, does: Does = "refresh") -> Step | None:
        """How to resolve a resource of the state that may still be changing; None: as any other."""
        return None

    def renewable(self, state: State) -> Sequence[Operation]:
        """Clusters that can get a new kubeconfig."""
        return ()

    def wait_deleted(self, resource: State, state: State, say: Callable[[str], None]) -> str:
        """Wait until a resource is deleted; returns why it still exists, empty if it does not."""
        return ""


def recovery_of(recoveries: Sequence[Recovery], type: str) -> Recovery | None:
    return next((one for one in recoveries if type.startswith(one.prefix)), None)
