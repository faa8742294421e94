"""The result of a check, with the commands that fix the problem and that repeat the check by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["PASS", "SKIP", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """One check; SKIP: gpuform works without the subject, or could not check it.

    ``fix`` is a command, or text if no command fixes it; ``check`` is the command that makes the same check
    by hand. Both may be empty.
    """

    subject: str
    verdict: Verdict
    fact: str
    fix: str = ""
    check: str = ""
