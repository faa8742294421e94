"""Progress while a tool is fetched or built: a live line on a terminal, else a line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.status import Status


@runtime_checkable
class Reporter(Protocol):
    """Takes the current state (``update``, replaced by the next) and lines to keep (``line``)."""

    def update(self, text: str) -> None:
        """Show the current state; called about once a second."""

    def line(self, text: str) -> None:
        """Print a line that stays."""


Progress = Callable[[str], None] | Reporter | None


class PlainReporter:
    """Plain lines: every kept line, and an update at most every ``interval_s`` seconds."""

    def __init__(self, write: Callable[[str], None], interval_s: float = 10.0) -> None:
        """``write`` takes one line without its end."""
        self._write = write
        self._every = interval_s
        self._last = time.monotonic()

    def update(self, text: str) -> None:
        if time.monotonic() - self._last >= self._every:
            self.line(text)

    def line(self, text: str) -> None:
        self._last = time.monotonic()
        self._write(text)


class LiveReporter:
    """One line that changes in place, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def update(self, text: str) -> None:
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def line(self, text: str) -> None:
        self.close()
        self._console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def reporting(progress: Progress) -> Iterator[Reporter]:
    """A reporter for ``progress``: itself, a function of one line, or None for stderr.

    It has no live line beside that of another console, which has then replaced stderr.
    """
    if isinstance(progress, Reporter):
        yield progress
    elif progress is not None:
        yield PlainReporter(progress)
    elif not isinstance(sys.stderr, FileProxy) and (console := Console(stderr=True)).is_terminal:
        live = LiveReporter(console)
        try:
            yield live
        finally:
            live.close()
    else:
        yield PlainReporter(_to_stderr)
