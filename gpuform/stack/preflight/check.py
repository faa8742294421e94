"""One check of an account; a query that the cloud does not answer becomes SKIP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure, Refusal
from gpuform.usage.finding import Finding, Verdict


@dataclass(frozen=True)
class Judged:
    """Result of a check; ``fix`` is a command, or text if no command fixes it."""

    verdict: Verdict
    fact: str
    fix: str = ""


@dataclass(frozen=True)
class Check:
    """The subject, the command that checks it by hand, and the function that judges it.

    ``judge`` is called with the client of the account: `gpuform.stack.preflight.aws.Aws` or
    `gpuform.stack.preflight.openstack.project.Project`.
    """

    subject: str
    by_hand: str
    judge: Callable[[Any], Judged]

    def run(self, account: Any) -> Finding:
        """SKIP if the query failed; the finding then names the missing permission."""
        try:
            found = self.judge(account)
        except Refusal as refused:
            if refused.denied:
                found = Judged("SKIP", f"not checked: the caller has no permission for {refused.subject}")
            else:
                said = refused.fact.strip().splitlines()[0]  # a proxy may answer with a whole page
                found = Judged("SKIP", f"not checked: {refused.subject}: {said}")
        except Failure as failure:
            found = Judged("SKIP", f"not checked: {failure.subject}: {failure.fact}", failure.remedy)
        return Finding(self.subject, found.verdict, found.fact, found.fix, self.by_hand)

    def skipped(self, why: str) -> Finding:
        return Finding(self.subject, "SKIP", f"not checked: {why}", check=self.by_hand)
