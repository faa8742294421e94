"""Waiting for Magnum: until something has settled, with its status on the screen, and never without a bound.

Magnum answers before it acts: a create before the thing is there, a change before its status says so. So a
wait does not believe a final status until it has seen something move, and gives up where nothing does.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gpuform.plugins.handler import Call
from gpuform.plugins.openstack.api import ApiError, Live

Look = Callable[[], Awaitable[Live | None]]

BEGINS_S = 60.0
"""How long Magnum's conductor may take to begin what its API has taken: the bound of its own RPC calls
(oslo.messaging's rpc_response_timeout, 60 s)."""

_FIRST_S, _LONGEST_S = 1.0, 10.0  # Magnum itself looks every 10 s: magnum/service/periodic.py
_LOST_LOOKS = 6
_MEANT = (401, 403, 404, 406)  # what looking again does not change


class Late(Exception):
    """Still in progress at the bound; ``live`` is what it was then."""

    def __init__(self, live: Live | None, waited_s: float) -> None:
        """Keep both."""
        super().__init__("late")
        self.live = live
        self.waited_s = waited_s


class Still(Exception):
    """Magnum took the request and nothing moved within `BEGINS_S`."""

    def __init__(self, live: Live | None) -> None:
        """Keep what it was and is."""
        super().__init__("still")
        self.live = live


@dataclass(frozen=True)
class Wait:
    """What is waited for: ``what`` names it on the screen, ``bound_s`` is how long at most."""

    call: Call
    what: str
    look: Look
    bound_s: float

    async def appeared(self) -> Live | None:
        """The thing that was asked for, or ``None`` where Magnum has not begun it within `BEGINS_S`.

        A run that goes on with it waits as long again: who is to make it may be back by now, and what was
        asked for still lie in its queue.
        """
        started, most = time.monotonic(), min(BEGINS_S, self.bound_s)
        async for live in self._looks():
            waited = time.monotonic() - started
            if live is not None or waited >= most:
                return live
            said = (
                f"Magnum took the request and does not show it yet ({waited:.0f} s of at most {most:.0f} s)"
            )
            await self.call.status(f"{self.what}: {said}")
        return None

    async def settled(self, moved: Callable[[Live], bool] | None = None) -> Live:
        """The thing once it is in no progress any more; raises `Late` at the bound, `Gone` where it vanishes.

        With ``moved``, a final status counts only once that says that Magnum has acted on what was asked;
        raises `Still` where it never does.
        """
        started, begun = time.monotonic(), moved is None
        async for live in self._looks():
            waited = time.monotonic() - started
            if live is None:
                raise Gone(self.what)
            begun = begun or moved is None or moved(live)
            if begun and not in_progress(live):
                return live
            if not begun and not in_progress(live) and waited >= min(BEGINS_S, self.bound_s):
                raise Still(live)
            if waited >= self.bound_s:
                raise Late(live, waited)
            await self._say(live, waited)
        raise AssertionError("looks never end")

    async def gone(self, before: Any = None) -> None:
        """Return once the thing is gone; raises `Late` at the bound, `Failed` where its deletion has failed.

        ``before`` is the `mark` ahead of the request: the status of an earlier failure is no answer to it.
        """
        begun = time.monotonic()
        async for live in self._looks():
            waited = time.monotonic() - begun
            if live is None or live.get("status") == "DELETE_COMPLETE":
                return
            moved = before is None or mark(live) != before or waited >= BEGINS_S
            if moved and live.get("status") == "DELETE_FAILED":
                raise Failed(live)
            if waited >= self.bound_s:
                raise Late(live, waited)
            await self._say(live, waited)

    async def _looks(self) -> AsyncIterator[Live | None]:
        """Look again and again, ever slower; a cloud that does not answer for a while is forgiven."""
        pause, lost = _FIRST_S, 0
        while True:
            try:
                live = await self.look()
                lost = 0
            except ApiError as error:
                lost += 1
                if error.status in _MEANT or lost >= _LOST_LOOKS:
                    raise
            else:
                yield live
            await self.call.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_S)

    async def _say(self, live: Live, waited: float) -> None:
        status = live.get("status") or "not begun yet"
        of = f"{waited:.0f} s" if waited < 90 else f"{waited / 60:.0f} min"
        await self.call.status(f"{self.what}: {status} ({of} of at most {self.bound_s / 60:.0f} min)")


class Gone(Exception):
    """It was there and is not any more."""


class Failed(Exception):
    """Its deletion has failed; ``live`` says why."""

    def __init__(self, live: Live) -> None:
        """Keep what Magnum says."""
        super().__init__("failed")
        self.live = live


def in_progress(live: Live) -> bool:
    """Whether Magnum is at work on it; a thing without a status has not been begun."""
    return not str(live.get("status") or "").endswith(("_COMPLETE", "_FAILED"))


def mark(live: Live) -> tuple[Any, ...]:
    """What changes when Magnum begins something: compare one taken before a request with later ones."""
    names = ("status", "status_reason", "updated_at", "node_count", "min_node_count", "max_node_count")
    return tuple(live.get(name) for name in (*names, "cluster_template_id"))


def reason(live: Live) -> str:
    """Status and why, as Magnum says it: the reason, and what it says of each group that failed."""
    faults = live.get("faults") or {}
    said = [str(live.get("status_reason") or "")] + [f"{name}: {why}" for name, why in sorted(faults.items())]
    told = "; ".join(dict.fromkeys(part for part in said if part and not part.endswith(": None")))
    return f"{live.get('status')}" + (f": {told}" if told else " (Magnum gives no reason)")
