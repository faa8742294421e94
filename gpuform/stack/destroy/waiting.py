"""Waiting, with a time limit, until objects are gone; reports what still exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.listing import some
from gpuform.kubernetes.client import Unreachable
from gpuform.stack.destroy.cluster import Kind, named

Say = Callable[[str], None]

_SHOWN = 5  # names in one line
_FIRST_S, _LONGEST_S = 0.1, 5.0
_REPEATED_S = 30.0  # an unchanged line is repeated after this: a CI log shows that it still waits


@dataclass(frozen=True)
class Left:
    """Something that should be gone; ``why`` it is not, if known."""

    kind: str
    name: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.why})" if self.why else self.name


class StillThere(Exception):
    """The time is up; ``left`` still exists."""

    def __init__(self, left: Sequence[Left], seconds: float) -> None:
        self.left, self.seconds = tuple(left), seconds
        super().__init__(f"{listed(left)} after {seconds:g} s")


def of_object(kind: Kind, one: Mapping[str, Any]) -> Left:
    finalizers = one["metadata"].get("finalizers") or ()
    return Left(kind.name, named(one), f"finalizer {', '.join(finalizers)}" if finalizers else "")


def listed(left: Sequence[Left]) -> str:
    """As in ``2 NodeClaims left: a (finalizer x), b; 1 NodePool left: c``."""
    kinds = list(dict.fromkeys(one.kind for one in left))
    return "; ".join(_of_kind(kind, [one for one in left if one.kind == kind]) for kind in kinds)


def _of_kind(kind: str, left: Sequence[Left]) -> str:
    return f"{counted(len(left), kind)} left: {some([str(one) for one in left], _SHOWN)}"


def counted(number: int, noun: str) -> str:
    """As in ``1 NodeClaim``, ``2 NodeClaims``."""
    plural = "es" if noun.endswith("ss") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def until_gone(look: Callable[[], Sequence[Left]], seconds: float, say: Say) -> None:
    """Return once ``look`` returns nothing; ``look`` may also request the deletions.

    ``say`` is called when what is left changes, and every half a minute. Raises StillThere when the time is
    up. A cluster that does not answer for a moment is queried again.
    """
    begun, pause, said, said_at = time.monotonic(), _FIRST_S, "", 0.0
    left: Sequence[Left] = ()
    while True:
        try:
            left = look()
            text = listed(left)
        except Unreachable as problem:
            left = left or [Left("answer", "of the cluster")]
            text = str(problem)
        if not left:
            return
        now = time.monotonic()
        if text != said or now - said_at > _REPEATED_S:
            said, said_at = text, now
            say(text)
        if now - begun >= seconds:
            raise StillThere(left, seconds)
        time.sleep(min(pause, max(seconds - (now - begun), 0.01)))
        pause = min(pause * 1.5, _LONGEST_S)
