"""What a check found, with the commands that mend it and that check it by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["PASS", "SKIP", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """One check: SKIP is something that gpuform can do without, or could not find out.

    ``fix`` is a command, or words where no command does it; ``check`` the command that finds out the same by
    hand. Both are empty where there is none.
    """

    subject: str
    verdict: Verdict
    fact: str
    fix: str = ""
    check: str = ""
