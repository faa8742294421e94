"""Where a command's words go: tables and results to stdout, plain where it is not a terminal."""

from __future__ import annotations

from rich.console import Console

# rich reads NO_COLOR and whether stdout is a terminal by itself; without one, a table is as wide as it needs.
console = Console(highlight=False, soft_wrap=False)


def say(line: str) -> None:
    """One plain line of progress or result."""
    console.print(line, markup=False, soft_wrap=True)
