"""The two tiers of the suite: ``make test`` runs the gate, ``make test-all`` the nightly tests, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

NIGHTLY = "nightly"
FAILED = "gpuform/failed"
"""Key in pytest's cache: the files with failed tests, and whether one of these is a unit test."""


def nightly_but(gate: str, cases: Mapping[str, Any]) -> list[Any]:
    """Parameters for ``pytest.mark.parametrize``: the case ``gate`` is in the gate, all others are nightly.

    Args:
        gate: id of the case that stays in the gate; KeyError if it does not exist.
        cases: the parameters by their id; those of a test with several parameters are tuples.
    """
    cases[gate]
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=name,
            marks=() if name == gate else pytest.mark.nightly,
        )
        for name, case in cases.items()
    ]


class Tiers:
    """Counts the tests of each tier; prints the counts and the reasons of skipped tests after the run."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.skipped: dict[str, Counter[str]] = {"gate": Counter(), NIGHTLY: Counter()}
        self.left_out: Counter[str] = Counter()
        self.failed: dict[str, bool] = {}

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.left_out.update(NIGHTLY if item.get_closest_marker(NIGHTLY) else "gate" for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Every worker of xdist collects all tests: the counts of one worker are those of the run."""
        self.left_out = Counter(getattr(node, "workeroutput", {}).get("left_out", self.left_out))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = dict(self.left_out)
        elif cache := getattr(session.config, "cache", None):  # none with -p no:cacheprovider
            cache.set(FAILED, self.failed)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        tier = NIGHTLY if NIGHTLY in report.keywords else "gate"
        if report.failed:
            file = report.nodeid.partition("::")[0]
            self.failed[file] = self.failed.get(file, False) or "unit" in report.keywords
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[tier][report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.when == "call" or (report.when == "setup" and report.failed):
            self.ran[tier] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("tiers")
        for tier, skipped in self.skipped.items():
            terminalreporter.line(
                f"{tier}: {self.ran[tier]} ran, {skipped.total()} skipped, {self.left_out[tier]} not selected"
            )
            for reason, number in skipped.most_common():
                terminalreporter.line(f"  {number} skipped: {reason}")
