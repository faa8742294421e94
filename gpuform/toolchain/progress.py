"""What a person sees while a tool is got: one live line on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.status import Status


@runtime_checkable
class Reporter(Protocol):
    """Takes what is going on now (``update``, replaced by the next) and what is worth keeping (``line``)."""

    def update(self, text: str) -> None:
        """Say what is going on now; called about once a second."""

    def line(self, text: str) -> None:
        """Say something that stays."""


Progress = Callable[[str], None] | Reporter | None


class Lines:
    """Plain lines: every kept line, and an update at most every ``every`` seconds."""

    def __init__(self, write: Callable[[str], None], every: float = 10.0) -> None:
        """``write`` takes one line without its end."""
        self._write = write
        self._every = every
        self._last = time.monotonic()

    def update(self, text: str) -> None:
        """Pass the text on unless something was written less than ``every`` seconds ago."""
        if time.monotonic() - self._last >= self._every:
            self.line(text)

    def line(self, text: str) -> None:
        """Pass the text on."""
        self._last = time.monotonic()
        self._write(text)


class Live:
    """One line that changes in place, on a terminal."""

    def __init__(self, console: Console) -> None:
        """Nothing is drawn before the first update."""
        self._console = console
        self._status: Status | None = None

    def update(self, text: str) -> None:
        """Replace the live line."""
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def line(self, text: str) -> None:
        """Print above the live line."""
        self.close()
        self._console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Take the live line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def reporting(progress: Progress) -> Iterator[Reporter]:
    """A reporter for what the caller gave: its own one, a function of one line, or None for stderr."""
    if isinstance(progress, Reporter):
        yield progress
    elif progress is not None:
        yield Lines(progress)
    elif (console := Console(stderr=True)).is_terminal:
        live = Live(console)
        try:
            yield live
        finally:
            live.close()
    else:
        yield Lines(_to_stderr)
