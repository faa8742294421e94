"""One check of an account, and what becomes of a question that the cloud does not answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuform.errors import Failure, Refusal
from gpuform.finding import Finding, Verdict


@dataclass(frozen=True)
class Judged:
    """What was found out; ``fix`` is a command, or words where no command does it."""

    verdict: Verdict
    fact: str
    fix: str = ""


@dataclass(frozen=True)
class Check:
    """What is looked at, the command that looks at it by hand, and the judgement.

    ``judge`` is given whoever asks the account: `gpuform.preflight.aws.Aws` or
    `gpuform.preflight.openstack.project.Project`.
    """

    subject: str
    by_hand: str
    judge: Callable[[Any], Judged]

    def run(self, account: Any) -> Finding:
        """The finding. What could not be asked is SKIP, and says which permission was missing."""
        try:
            found = self.judge(account)
        except Refusal as refused:
            if refused.denied:
                found = Judged("SKIP", f"not checked: the caller may not {refused.subject}")
            else:
                said = refused.fact.strip().splitlines()[0]  # a proxy may answer with a whole page
                found = Judged("SKIP", f"not checked: {refused.subject}: {said}")
        except Failure as failure:
            found = Judged("SKIP", f"not checked: {failure.subject}: {failure.fact}", failure.remedy)
        return Finding(self.subject, found.verdict, found.fact, found.fix, self.by_hand)

    def skipped(self, why: str) -> Finding:
        """The finding where asking makes no sense."""
        return Finding(self.subject, "SKIP", f"not checked: {why}", check=self.by_hand)
