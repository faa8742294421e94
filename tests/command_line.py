"""Whether a command line or a make target that a text names exists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer


def parse(app: typer.Typer, words: Sequence[str]) -> None:
    """Raises the command line's error for unknown commands, options and arguments; runs nothing."""
    _parse(typer.main.get_command(app), list(words))


def make_targets() -> set[str]:
    makefile = Path(__file__).parents[1] / "Makefile"
    return set(re.findall(r"^([a-z-]+):", makefile.read_text(encoding="utf-8"), re.MULTILINE))


def _parse(command: Any, words: list[str]) -> None:
    context = command.make_context(command.name or "", words)
    if hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        _parse(getattr(command, "loaded", command.commands)[rest[0]], rest[1:])
