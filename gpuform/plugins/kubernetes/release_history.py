"""A release's history, whose release it is, and what a killed run left to be done.

Every revision that we make carries two labels: ``gpuform.io/urn`` (whose release it is) and
``gpuform.io/revision`` (its own number). An upgrade by hand inherits both, with a number that is not its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

OWNER = "gpuform.io/urn"
NUMBER = "gpuform.io/revision"
_PENDING = ("pending-install", "pending-upgrade", "pending-rollback")


@dataclass(frozen=True)
class Revision:
    """One revision as helm stores it; ``owner`` is empty where we did not make the release."""

    number: int
    status: str
    owner: str = ""
    made_as: int = 0

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Revision:
        """Read the labels of the Secret that helm keeps per revision."""
        labels = metadata.get("labels") or {}
        made_as = labels.get(NUMBER, "")
        return cls(
            number=int(labels.get("version", 0)),
            status=str(labels.get("status", "unknown")),
            owner=str(labels.get(OWNER, "")),
            made_as=int(made_as) if made_as.isdigit() else 0,
        )

    @property
    def pending(self) -> bool:
        """Whether helm is at work on it, or was when it was killed."""
        return self.status in _PENDING


class Next(Enum):
    """What has to happen to a release that a program asks for."""

    INSTALL = "install"
    REINSTALL = "uninstall what is left, then install"
    UPGRADE = "upgrade"
    REPAIR = "roll back what is left pending, then upgrade"
    FOREIGN = "refuse: somebody else made it"
    BUSY = "refuse: somebody else is at work on it"


def owner(urn: str) -> str:
    """The value of `OWNER` for a resource: 32 hex digits of the URN's SHA-256."""
    return hashlib.sha256(urn.encode()).hexdigest()[:32]


def labels(urn: str, history: Sequence[Revision]) -> str:
    """The value of helm's ``--labels`` for the revision that comes after ``history``."""
    return f"{OWNER}={owner(urn)},{NUMBER}={max((item.number for item in history), default=0) + 1}"


def after_create(history: Sequence[Revision], urn: str) -> Next:
    """What create has to do: the engine knows of none, so one that exists is a killed run's or foreign."""
    if not history:
        return Next.INSTALL
    if history[-1].owner != owner(urn):
        return Next.FOREIGN
    return _again(history) if last_good(history) else Next.REINSTALL


def after_update(history: Sequence[Revision]) -> Next:
    """What update has to do: only a release that somebody is upgrading by hand right now is refused."""
    if not history:
        return Next.INSTALL
    last = history[-1]
    if last.pending and last.status != "pending-rollback" and last.made_as != last.number:
        return Next.BUSY
    return _again(history)


def last_good(history: Sequence[Revision]) -> Revision | None:
    """The revision to go back to: the one that is deployed, else the last one that was."""
    for status in ("deployed", "superseded"):
        for item in reversed(history):
            if item.status == status:
                return item
    return None


def _again(history: Sequence[Revision]) -> Next:
    last = history[-1]
    if last.status.startswith("uninstall") or (last.pending and last_good(history) is None):
        return Next.REINSTALL
    if last.pending:
        return Next.REPAIR
    return Next.UPGRADE
