"""Every rule fires exactly where it must, and each of its conditions is needed."""

from __future__ import annotations

import pytest

from policies.pack import RULES
from policies.rule import judge
from tests.policies.cases import Case, cases
from tests.policies.mutants import Mutant, mutants

pytestmark = pytest.mark.unit

MODULES = (
    *("aws", "eks", "exposure", "guarded", "health", "iam", "kubernetes", "node_pools", "openstack"),
    *("operator", "queues", "scaling", "sharing"),
)
BY_ID = {rule.id: rule for rule in RULES}
KNOWN = [case for case in cases() if case.kind != "unknown"]


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case.id)
def test_the_rule_says_what_the_case_expects(case: Case) -> None:
    found = [finding.fact for finding in judge([BY_ID[case.rule]], case.resources)]
    assert found == ([case.finds] if case.finds else [])


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
    survivors = [mutant.what for mutant in mutants(module) if _agrees(mutant, cases(module))]
    assert survivors == []


def _agrees(mutant: Mutant, tried: list[Case]) -> bool:
    """Whether the mutant gives the rule's result for every known case."""
    for case in tried:
        if case.kind == "unknown":
            continue
        try:
            found = [finding.fact for finding in judge([mutant.rule(case.rule)], case.resources)]
        except Exception:
            return False  # it fails on a case that the rule can judge
        if found != ([case.finds] if case.finds else []):
            return False
    return True
