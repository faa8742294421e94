"""The end of a version's support on each side of its days, and the day as of which the rules judge."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from gpuform.cli.main import app
from infra.model.eks_support import EKS
from policies import contract
from policies.clock import today
from policies.eks import RULES
from policies.rule import Resource, judge

pytestmark = pytest.mark.unit


def found(version: str, support: str, day: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("GPUFORM_TODAY", day)
    props = {"version": version, "upgradePolicy": {"supportType": support}}
    return [one.rule.id for one in judge(RULES, [Resource(contract.CLUSTER, "eks", props)])]


@pytest.mark.parametrize(
    ("support", "day", "rules"),
    [
        ("STANDARD", "2026-09-02", []),
        ("STANDARD", "2026-09-03", ["eks-support-ends"]),
        ("STANDARD", "2026-12-01", ["eks-support-ends"]),
        ("STANDARD", "2026-12-02", ["eks-supported"]),
        ("EXTENDED", "2026-12-02", []),
        ("EXTENDED", "2027-09-03", ["eks-support-ends"]),
        ("EXTENDED", "2027-12-02", ["eks-supported"]),
    ],
)
def test_a_version_is_warned_of_before_its_end_and_refused_after(
    support: str, day: str, rules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found("1.34", support, day, monkeypatch) == rules


def test_the_calendar_is_that_of_the_program() -> None:
    ours = {version: (str(one.standard), str(one.extended)) for version, one in EKS.items()}
    assert ours == contract.EKS_SUPPORT


def test_extended_support_is_a_year_more() -> None:
    for one in EKS.values():
        assert one.extended == one.standard.replace(year=one.standard.year + 1)


def test_without_a_day_given_it_is_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUFORM_TODAY", raising=False)
    before = datetime.now(UTC).date()
    assert before <= today() <= datetime.now(UTC).date()


def test_what_is_no_day_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFORM_TODAY", "2026-02-30")
    with pytest.raises(
        ValueError, match=r"^GPUFORM_TODAY: '2026-02-30' is not a day; write it as 2026-11-25$"
    ):
        today()


def test_a_preview_as_of_no_day_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFORM_TODAY", "soon")
    result = CliRunner().invoke(app, ["preview", "local"])
    assert result.exit_code == 2
    assert result.stderr == "error: GPUFORM_TODAY: is not a day; write it as 2026-11-25\n"
