"""What was found of an interrupted run, how each part will be resolved, and what a cloud tells about it.

Resources belong to the cloud with the prefix of their type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Protocol, Self

from gpuform.checkout.errors import Failure
from gpuform.engine.locks import Owner
from gpuform.engine.pending import Operation

Action = Literal[
    "import", "finish", "recreate", "clear", "refresh", "renew", "roll back", "mark failed", "leave"
]

MANUAL: Final = "leave"
"""Nothing is done; the reason says why, and who resolves it."""


@dataclass(frozen=True)
class Lock:
    """One lock on the stack. ``alive`` is None if its owner ran on another host, so it is unknown.

    ``content`` is the lock's content when it was read: a lock with other content by the time it is removed is
    a different one.
    """

    key: str
    owner: Owner | None
    content: bytes
    alive: bool | None
    confirmed: bool = False

    @property
    def owner_name(self) -> str:
        if self.owner:
            return self.owner.description
        return (
            "an unknown owner (unreadable lock)"
            if self.alive is None
            else "a run that was killed while writing it"
        )

    @property
    def state(self) -> str:
        return {True: "alive", False: "gone", None: "unknown"}[self.alive]


@dataclass(frozen=True)
class Step:
    """One pending operation of the state, and its resolution.

    ``import``: it was created; the state gets it under ``id``. ``finish``: it was created in part; the state
    gets it as one that the next update must complete. ``recreate``: its creation failed, and the next update
    replaces it. ``clear``: it was not created, and nothing is left of it. ``refresh``: the state has it, and
    the real resource is read again; ``renew``: the same, and its outputs are discarded. ``leave``: see
    ``why``; ``busy_s`` is the most seconds that the cloud will still work on it. ``manager`` is the field
    manager that applied an object.
    """

    urn: str
    type: str
    interrupted_while: str
    does: Action
    why: str
    id: str | None = None
    manager: str = ""
    busy_s: float = 0.0

    @classmethod
    def of(
        cls, operation: Operation, does: Action, why: str, id: str | None = None, manager: str = ""
    ) -> Self:
        return cls(operation.urn, operation.type, operation.kind, does, why, id, manager)

    @classmethod
    def manual(cls, operation: Operation, why: str) -> Self:
        name = operation.name
        return cls.of(operation, MANUAL, f"{why}; look it up, then --import {name}=ID or --clear {name}")

    @property
    def name(self) -> str:
        return self.urn.rpartition("::")[2]


def ambiguous(operation: Operation, ids: Sequence[str]) -> Failure:
    return Failure(
        operation.urn,
        f"could be any of {' and '.join(ids)}",
        f"find out which it is, give --import {operation.name}=ID, and delete the other",
    )


@dataclass(frozen=True)
class Release:
    """A Helm release of a resource of this stack with a pending ``newest`` revision.

    ``roll back`` to ``revision``; ``mark failed`` if there is no such revision, so that Helm upgrades it;
    ``leave``.
    """

    urn: str
    id: str
    status: str
    does: Action
    why: str
    newest: int = 0
    revision: int | None = None


@dataclass(frozen=True)
class Plan:
    """The whole plan. ``state`` is the stack's state when it was read, with its secrets: never shown."""

    stack: str
    backend: str
    locks: tuple[Lock, ...] = ()
    steps: tuple[Step, ...] = ()
    releases: tuple[Release, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def has_work(self) -> bool:
        return bool(self.locks or self.steps or self.releases)

    @property
    def manual_items(self) -> tuple[Step | Release, ...]:
        steps = tuple(step for step in self.steps if step.does == MANUAL)
        return (*steps, *(release for release in self.releases if release.does == MANUAL))

    @property
    def is_decided(self) -> bool:
        return all(step.does != MANUAL for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """The documented form; contains no secrets."""
        return {
            "stack": self.stack,
            "backend": self.backend,
            "locks": [_lock_json(lock) for lock in self.locks],
            "operations": [
                {
                    "urn": step.urn,
                    "type": step.type,
                    "interrupted_while": step.interrupted_while,
                    "does": step.does,
                    "id": step.id,
                    "why": step.why,
                }
                for step in self.steps
            ],
            "releases": [vars(release) for release in self.releases],
        }


def _lock_json(lock: Lock) -> dict[str, Any]:
    owner = lock.owner
    return {
        "key": lock.key,
        "state": lock.state,
        "does": "remove",
        "user": owner.user if owner else None,
        "host": owner.host if owner else None,
        "pid": owner.pid if owner else None,
        "since": owner.since.isoformat() if owner else None,
    }


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

    def require_account(self, stack: str, state: State) -> None:
        """Raise Failure if the credentials are of an account or project in which the stack has nothing.

        There, no resource would be found: each would be created a second time, or removed from the state.
        """

    def lookup(self, operation: Operation, state: State) -> Step:
        """How to resolve one interrupted create. Raises Failure if two resources match."""

    def reread(self, operation: Operation, state: State, does: Action = "refresh") -> Step | None:
        """How to resolve a resource of the state that may still be changing; None: as any other."""
        return None

    def renewable(self, state: State) -> Sequence[Operation]:
        """Clusters that can get a new kubeconfig."""
        return ()

    def wait_deleted(self, resource: State, state: State, say: Callable[[str], None]) -> str:
        """Wait until a resource is deleted; returns why it still exists, empty if it does not."""
        return ""


def recovery_of(recoveries: Sequence[Recovery], type: str) -> Recovery | None:
    return next((recovery for recovery in recoveries if type.startswith(recovery.prefix)), None)
