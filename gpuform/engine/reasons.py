"""Why a run ended with an error, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_INVOKED = re.compile(r"^Exception: invoke of (\S+) failed: invocation of \1 returned an error: ")


def fact(errors: Sequence[str], code: int, log: Path | None) -> str:
    """The first reported error, else the first in the engine's log, else the exit code."""
    said = list(errors)
    if not said:
        said = [
            text.removeprefix("error: ") for text in written(log).splitlines() if text.startswith("error: ")
        ]
    if code < 0:
        said.append(f"the engine was killed by signal {-code}")
    why = f"failed: {_reason(said[0])}" if said else f"failed with exit code {code}"
    return why + (f" (and {len(said) - 1} more)" if len(said) > 1 else "")


def written(log: Path | None) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log is not None else ""


def _reason(text: str) -> str:
    """The line of a message that says what is wrong: the last of a traceback, else the first."""
    lines = [part.strip() for part in text.splitlines() if part.strip()] or ["no reason given"]
    if lines[0].startswith("Program failed with"):
        return _INVOKED.sub("", lines[-1])
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
