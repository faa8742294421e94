"""Waits for the end of what a destroy deletes, and says what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.listing import abbreviate, count_of
from gpuform.kubernetes.client import Unreachable
from gpuform.kubernetes.cluster import name_of
from gpuform.kubernetes.kinds import Kind

Say = Callable[[str], None]

_SHOWN = 5  # names in one line
_FIRST_S, _LONGEST_S = 0.1, 5.0
_REPEATED_S = 30.0  # an unchanged line is repeated after this: a CI log shows that it still waits


@dataclass(frozen=True)
class Remaining:
    """Something that should be gone; ``why`` it is not, if known."""

    kind: str
    name: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.why})" if self.why else self.name


class StillExists(Exception):
    """The time is up; ``remaining`` still exists."""

    def __init__(self, remaining: Sequence[Remaining], seconds: float) -> None:
        self.remaining, self.seconds = tuple(remaining), seconds
        super().__init__(f"{summarise(remaining)} after {seconds:g} s")


def remaining_object(kind: Kind, item: Mapping[str, Any]) -> Remaining:
    finalizers = item["metadata"].get("finalizers") or ()
    return Remaining(kind.name, name_of(item), f"finalizer {', '.join(finalizers)}" if finalizers else "")


def summarise(remaining: Sequence[Remaining]) -> str:
    """As in ``2 NodeClaims left: a (finalizer x), b; 1 NodePool left: c``."""
    kinds = list(dict.fromkeys(item.kind for item in remaining))
    return "; ".join(_format_kind(kind, [item for item in remaining if item.kind == kind]) for kind in kinds)


def _format_kind(kind: str, remaining: Sequence[Remaining]) -> str:
    return f"{count_of(len(remaining), kind)} left: {abbreviate([str(item) for item in remaining], _SHOWN)}"


def require_deleted(
    subject: str, find_remaining: Callable[[], Iterable[Remaining]], seconds: float, say: Say, remedy: str
) -> None:
    """As `wait_until_deleted`; Failure of ``subject`` with ``remedy`` when the time is up."""
    try:
        wait_until_deleted(lambda: list(find_remaining()), seconds, say)
    except StillExists as timeout:
        raise Failure(f"destroy: {subject}", str(timeout), remedy) from None


def wait_until_deleted(find_remaining: Callable[[], Sequence[Remaining]], seconds: float, say: Say) -> None:
    """Return once ``look`` returns nothing; ``look`` may also request the deletions.

    ``say`` is called when what is left changes, and every half a minute. Raises StillThere when the time is
    up. A cluster that does not answer for a moment is queried again.
    """
    began, pause, printed, printed_at = time.monotonic(), _FIRST_S, "", 0.0
    remaining: Sequence[Remaining] = ()
    while True:
        try:
            remaining = find_remaining()
            text = summarise(remaining)
        except Unreachable as problem:
            remaining = remaining or [Remaining("answer", "of the cluster")]
            text = str(problem)
        if not remaining:
            return
        now = time.monotonic()
        if text != printed or now - printed_at > _REPEATED_S:
            printed, printed_at = text, now
            say(text)
        if now - began >= seconds:
            raise StillExists(remaining, seconds)
        time.sleep(min(pause, max(seconds - (now - began), 0.01)))
        pause = min(pause * 1.5, _LONGEST_S)
