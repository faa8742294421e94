"""The policy engine's analyzer protocol, through the language host."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuform.engine import EngineFailure
from tests.engine.conftest import Project

pytestmark = pytest.mark.engine

PACK = """
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy, StackValidationPolicy

def no_second(args, report):
    if args.name == "{name}":
        report(f"{{args.name}} is one too many")

PolicyPack("parts", policies=[
    ResourceValidationPolicy(
        name="one-part", description="There is one part.", validate=no_second,
        enforcement_level=EnforcementLevel.{level},
    ),
])
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 0.0.1\n")
    return folder


def test_a_mandatory_policy_blocks_preview_and_up(project: Project, pack: Path) -> None:
    (pack / "__main__.py").write_text(PACK.format(name="2", level="MANDATORY"))
    for operation in (project.engine.preview, project.engine.up):
        with pytest.raises(EngineFailure, match=r"policy parts/one-part: There is one part\.") as caught:
            operation(policy_packs=[pack])
        assert "2 is one too many" in "\n".join(caught.value.result.errors)
        (violation,) = caught.value.result.violations
        assert violation.mandatory
        assert violation.urn.endswith("::2")


@pytest.mark.parametrize(("name", "level", "mandatory"), [("2", "ADVISORY", [False]), ("4", "MANDATORY", [])])
def test_an_advisory_policy_or_one_that_holds_lets_the_run_pass(
    project: Project, pack: Path, name: str, level: str, mandatory: list[bool]
) -> None:
    (pack / "__main__.py").write_text(PACK.format(name=name, level=level))
    result = project.engine.up(policy_packs=[pack])
    assert [violation.mandatory for violation in result.violations] == mandatory
    assert result.changes == {"create": 3}


def test_a_pack_that_fails_to_load_is_shown(project: Project, pack: Path) -> None:
    (pack / "__main__.py").write_text("raise ValueError('no pack today')")
    with pytest.raises(EngineFailure):
        project.engine.preview(policy_packs=[pack])
    assert "ValueError: no pack today" in "\n".join(project.said)
