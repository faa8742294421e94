"""One check of an account, and what becomes of a question that AWS does not answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuform.aws.api import Refused
from gpuform.errors import Failure
from gpuform.finding import Finding, Verdict
from gpuform.preflight.aws import Aws

DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
"""Codes by which AWS's services say that the caller may not ask (IAM and EC2 API references, errors)."""


@dataclass(frozen=True)
class Judged:
    """What was found out; ``fix`` is a command, or words where no command does it."""

    verdict: Verdict
    fact: str
    fix: str = ""


@dataclass(frozen=True)
class Check:
    """What is looked at, the command that looks at it by hand, and the judgement."""

    subject: str
    by_hand: str
    judge: Callable[[Aws], Judged]

    def run(self, aws: Aws) -> Finding:
        """The finding. What could not be asked is SKIP, and says which permission was missing."""
        try:
            found = self.judge(aws)
        except Refused as refused:
            if refused.code in DENIED:
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
