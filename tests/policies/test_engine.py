"""Every case of every rule through the real engine, with the policy pack as users run it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, EngineFailure, Violation
from lab.toolchain import Toolchain
from policies.pack import RULES
from tests.policies.cases import UNKNOWN, Case, cases
from tests.tiers import nightly_but

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
REMEDY = {rule.id: rule.remedy for rule in RULES}
WHOLE_STACK = {rule.id for rule in RULES if rule.whole_stack}
RUN_AS = {
    "gpus-guarded": "driver-owner",
    "one-device-plugin": "driver-owner",
    "repair-sees-gpus": "one-remediator",
}
"""Rules over the whole stack that read the same resources as another one: their cases run separately."""
PROGRAM = """
import json
from pathlib import Path

import pulumi

later = pulumi.CustomResource("gpuform:test:Later", "later", {}).id  # unknown in a preview

def filled(value):
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    return later if value == "???" else value

# One on a cluster that is not there yet: the engine asks it for nothing, and its outputs are empty.
absent = pulumi.ProviderResource("kubernetes", "absent", {"kubeconfig": later})

for type_, name, props, ignores, waits in json.loads(Path("cases.json").read_text()):
    if type_.startswith("pulumi:providers:"):
        pulumi.ProviderResource(type_.rsplit(":", 1)[-1], name, filled(props))
    else:
        opts = pulumi.ResourceOptions(ignore_changes=ignores, provider=absent if waits else None)
        pulumi.CustomResource(type_, name, filled(props), opts)
"""


def batches() -> dict[str, list[Case]]:
    """Cases that do not interfere: each batch has one case of a whole-stack rule; the others run at once."""
    by_rule: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        by_rule[RUN_AS.get(case.rule, case.rule)].append(case)
    whole_stack = itertools.zip_longest(
        *(of_rule for rule, of_rule in by_rule.items() if rule in WHOLE_STACK)
    )
    single = [case for rule, of_rule in by_rule.items() if rule not in WHOLE_STACK for case in of_rule]
    return {"rules of one resource": single} | {
        f"rules of the whole stack {number}": [case for case in batch if case]
        for number, batch in enumerate(whole_stack)
    }


def resource_name(case: Case, index: int) -> str:
    name = case.resources[index].name
    return f"{case.id}-{name}" if name == f"r{index}" else name


@pytest.fixture
def engine(tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A checkout with providers that accept everything, on PATH like official ones."""
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    (tmp_path / "policies" / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 0.1.0\n")
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "__main__.py").write_text(PROGRAM)
    (tmp_path / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
    (tmp_path / "Pulumi.local.yaml").write_text("config: {}\n")
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    for name in ("aws", "kubernetes", "openstack", "gpuform"):
        plugin = plugins / f"pulumi-resource-{name}"
        plugin.write_text(
            f'#!/bin/sh\ncd {ROOT}\nexec {sys.executable} -m tests.policies.accepting {name} "$@"\n'
        )
        plugin.chmod(0o755)
    monkeypatch.setenv("PATH", f"{plugins}{os.pathsep}{os.environ['PATH']}")
    paths = Paths(tmp_path, tmp_path / ".gpuform", tmp_path / "cache")
    return Engine(paths, toolchain, say=lambda text: None)


@pytest.mark.parametrize("batch", nightly_but("rules of one resource", batches()))
def test_every_case_through_the_engine(engine: Engine, batch: list[Case], tmp_path: Path) -> None:
    violations = preview(engine, tmp_path, batch)
    failed = [case.id for case in batch if reported_facts(case, violations) != expected(case)]
    assert failed == [], [reported_facts(case, violations) for case in batch if case.id in failed]


def test_what_is_made_on_a_cluster_that_is_not_there_yet_is_judged_as_well(
    engine: Engine, tmp_path: Path
) -> None:
    ids = ("mig-layout-known-bad-0", "spot-with-queue-good-0", "expiry-with-grace-bad-0")
    batch = [case for case in cases() if case.id in ids]
    violations = preview(engine, tmp_path, batch, on_absent=True)
    assert [reported_facts(case, violations) for case in batch] == [expected(case) for case in batch]


def preview(engine: Engine, root: Path, batch: list[Case], on_absent: bool = False) -> tuple[Violation, ...]:
    declared = [
        (
            resource.type,
            resource_name(case, index),
            resource.props,
            resource.ignores,
            on_absent and resource.type.startswith("kubernetes:"),
        )
        for case in batch
        for index, resource in enumerate(case.resources)
    ]
    (root / "infra" / "cases.json").write_text(json.dumps(declared))
    try:
        return engine.preview(policy_packs=[root / "policies"]).violations
    except EngineFailure as failure:
        if not failure.result.violations:
            raise
        return failure.result.violations


def reported_facts(case: Case, violations: tuple[Violation, ...]) -> list[str]:
    """Violations of the case's rule on the case's resources, without its description.

    "Unknown" is reported for the stack if the rule reads all of it.
    """
    names = {resource_name(case, index) for index in range(len(case.resources))}
    violations_ = [violation for violation in violations if violation.policy == f"gpuform/{case.rule}"]
    if case.kind == "unknown":
        whole_stack = case.rule in WHOLE_STACK
        violations_ = [
            violation
            for violation in violations_
            if whole_stack or violation.urn.rsplit("::", 1)[-1] in names
        ]
        return [
            UNKNOWN for violation in violations_ if violation.text.endswith("can't be known during preview")
        ]
    return [
        violation.text.split("\n", 1)[-1].strip()
        for violation in violations_
        if violation.urn.rsplit("::", 1)[-1] in names
    ]


def expected(case: Case) -> list[str]:
    if case.kind == "unknown":
        return [UNKNOWN]
    return [f"{case.finds}; {REMEDY[case.rule]}"] if case.finds else []
