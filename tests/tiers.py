"""The two tiers of the suite: ``make test`` runs the gate, ``make test-all`` the nightly tests, too."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from tests.external import ABSENT

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


def outcome(tests: Iterable[str], outcomes: Mapping[str, set[str]]) -> str:
    """What a row's tests show together; parameters of one test have an outcome each."""
    found = [*set().union(*(outcomes.get(test, ()) for test in tests))]
    return next((one for one in ("failed", "passed", "skipped") if one in found), "not run")


class Tiers:
    """Counts the tests of each tier; prints the counts and the reasons of skipped tests after the run.

    A run of a whole tier also says which rows of the sources its passed tests show. It fails if all tests of
    a row were skipped; a run of everything also fails if no test of a row ran.

    Args:
        rows: tests by row, as file below tests/ and name.
        unshown: what no test of a row shows, by row.
    """

    def __init__(self, rows: Mapping[int, Sequence[str]], unshown: Mapping[int, str]) -> None:
        self.rows, self.unshown = rows, unshown
        self.outcomes: dict[str, set[str]] = defaultdict(set)
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

    def shown(self, config: pytest.Config) -> dict[str, list[int]]:
        """Rows by outcome; empty if only some tests of a tier were selected."""
        selected = config.getoption("markexpr")
        if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.getoption("keyword"):
            return {}
        if selected not in ("", f"not {NIGHTLY}"):
            return {}
        found = defaultdict(list)
        for row, tests in ((row, tests) for row, tests in self.rows.items() if tests):
            found[outcome(tests, self.outcomes)].append(row)
        if selected:
            found[NIGHTLY] = found.pop("not run", [])
        return found

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workeroutput") and session.exitstatus == pytest.ExitCode.OK:
            shown = self.shown(session.config)
            if shown.get("skipped") or shown.get("not run"):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = dict(self.left_out)
        elif cache := getattr(session.config, "cache", None):  # none with -p no:cacheprovider
            cache.set(FAILED, self.failed)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        tier = NIGHTLY if NIGHTLY in report.keywords else "gate"
        if report.when == "call" or not report.passed:
            self.outcomes[report.nodeid.partition("[")[0].removeprefix("tests/")].add(report.outcome)
        if report.failed:
            file = report.nodeid.partition("::")[0]
            self.failed[file] = self.failed.get(file, False) or "unit" in report.keywords
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[tier][report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.when == "call" or (report.when == "setup" and report.failed):
            self.ran[tier] += 1

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        terminalreporter.section("tiers")
        for tier, skipped in self.skipped.items():
            terminalreporter.line(
                f"{tier}: {self.ran[tier]} ran, {skipped.total()} skipped, {self.left_out[tier]} not selected"
            )
            for reason, number in skipped.most_common():
                terminalreporter.line(f"  {number} skipped: {reason}")
        reasons = sum(self.skipped.values(), Counter())
        absent = sum(number for reason, number in reasons.items() if reason.startswith(ABSENT))
        terminalreporter.line(f"external checks: {absent or 'no'} tests had nothing to compare with")
        if shown := self.shown(config):
            rows = [f"{how}: {', '.join(map(str, found))}" for how, found in sorted(shown.items()) if found]
            left = [f"{row} ({what})" for row, what in self.unshown.items()]
            terminalreporter.line(f"rows of the sources: {'; '.join(rows)}; open: {', '.join(left)}")
