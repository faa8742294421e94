"""Generates the page on every command: ``python -m gpuform.cli.commands_docs docs/reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from gpuform.cli.main import app

PAGE = "commands.md"
_HEAD = """<!-- Made by `make docs` from the commands' own help; a test compares. -->

# Commands

`gpuform COMMAND --help` prints the same. Exit codes: 0 success, 1 failure, 2 bad input, 3 drift.
"""


def page() -> str:
    """The page in Markdown, one section per command, the same bytes every time."""
    return "\n".join([_HEAD, *_sections("gpuform", get_command(app))])


def _sections(name: str, command: Any) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for part, below in command.commands.items():
            yield from _sections(f"{name} {part}", below)
        return
    yield f"## {name}\n"
    yield " ".join(command.help.split()) + "\n"
    context = Context(command)
    rows = [given.get_help_record(context) for given in command.params]
    yield "\n".join([*(f"- `{row[0]}`: {row[1]}" for row in rows if row), ""])


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), encoding="utf-8")
