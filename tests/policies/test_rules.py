"""Every rule fires exactly where it must, and each of its conditions is needed.

The end of a version's support is tested on each side of its days, with the day as of which the rules judge.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from gpuform.cli.main import app
from policies import contract, eks
from policies.clock import today
from policies.pack import EXEMPT, RULES, validated
from policies.rule import Resource, Rule, judge
from tests.policies.cases import Case, cases
from tests.policies.mutants import Mutant, mutants

pytestmark = pytest.mark.unit

MODULES = (
    *("aws", "eks", "exposure", "guarded", "health", "iam", "kubernetes", "node_pools", "openstack"),
    *("operator", "queues", "scaling", "sharing"),
)
BY_ID = {rule.id: rule for rule in RULES}
KNOWN_CASES = [case for case in cases() if case.kind != "unknown"]


@pytest.mark.parametrize("case", KNOWN_CASES, ids=lambda case: case.id)
def test_the_rule_says_what_the_case_expects(case: Case) -> None:
    facts = [finding.fact for finding in judge([BY_ID[case.rule]], case.resources)]
    assert facts == ([case.finds] if case.finds else [])


@pytest.mark.parametrize(("names", "found"), [(["ml"], False), (["other"], True), ([], True)])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.exempts], ids=lambda rule: rule.id)
def test_namespaces_that_the_configuration_names_are_exempt(
    rule: Rule, names: list[str], found: bool
) -> None:
    props = {"metadata": {"name": "ml", "namespace": "ml"}, "spec": {"hostPID": True}}
    args = SimpleNamespace(
        resource_type=rule.types[0],
        name="a",
        urn="u",
        props=props,
        opts=SimpleNamespace(ignore_changes=()),
        get_config=lambda: {EXEMPT: names} if names else {},
    )
    said: list[str] = []
    validated(rule, {})(args, said.append)
    assert bool(said) == found


def test_every_rule_has_cases_of_each_kind_and_every_case_a_rule() -> None:
    kinds = {(case.rule, case.kind) for case in cases()}
    assert kinds == {(rule, kind) for rule in BY_ID for kind in ("bad", "good", "unknown")}
    assert len(BY_ID) == len(RULES)


def test_every_rule_says_what_to_do() -> None:
    for rule in RULES:
        assert rule.title.endswith("."), rule.id
        assert len(rule.remedy) > 10, rule.id
        assert not rule.remedy.endswith("."), rule.id


@pytest.mark.parametrize("module", MODULES)
def test_every_broken_condition_is_caught(module: str) -> None:
    survivors = [mutant.description for mutant in mutants(module) if _agrees(mutant, cases(module))]
    assert survivors == []


def _agrees(mutant: Mutant, cases_: list[Case]) -> bool:
    """Whether the mutant gives the rule's result for every known case."""
    for case in cases_:
        if case.kind == "unknown":
            continue
        try:
            facts = [finding.fact for finding in judge([mutant.rule(case.rule)], case.resources)]
        except Exception:
            return False  # it fails on a case that the rule can judge
        if facts != ([case.finds] if case.finds else []):
            return False
    return True


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
    monkeypatch.setenv("GPUFORM_TODAY", day)
    props = {"version": "1.34", "upgradePolicy": {"supportType": support}}
    found = judge(eks.RULES, [Resource(contract.CLUSTER, "eks", props)])
    assert [finding.rule.id for finding in found] == rules


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
