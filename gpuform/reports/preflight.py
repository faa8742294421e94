"""Prints a preflight's result before an update: what did not pass, and how many checks did."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from gpuform.checkout.errors import Failure
from gpuform.reports import tables
from gpuform.stack.preflight.check import Finding


def require(stack: str, findings: Iterable[Finding], console: Console) -> None:
    """Print the findings that did not pass; Failure if a check failed."""
    found = list(findings)
    shown = [finding for finding in found if finding.verdict != "PASS"]
    failed = sum(finding.verdict == "FAIL" for finding in shown)
    if shown:
        console.print(tables.findings(shown))
    passed = len(found) - len(shown)
    total = f"preflight of stack {stack}: {passed} of {len(found)} checks passed, {failed} failed"
    for line in [*tables.by_hand([one for one in shown if one.verdict == "FAIL"]), total]:
        console.print(line, markup=False, soft_wrap=True)
    if failed:
        raise Failure(
            f"preflight of stack {stack}",
            f"{failed} of {len(found)} checks failed, and nothing was changed",
            "fix them, or skip the preflight: gpuform up --skip-preflight, "
            "GPUFORM_SKIP_PREFLIGHT=1 pulumi up",
        )
