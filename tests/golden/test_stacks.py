"""One stack rendered, byte for byte, and of the others the files that it does not have.

Of a program in a ConfigMap only the SHA-256 is stored. GPUFORM_UPDATE_GOLDEN=1 writes the files again; review
the diff before committing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

import pytest

from infra.config import load
from infra.inventory import read_keys
from infra.plan.program import SOURCE
from infra.plan.render import render
from tests.plan.same_bytes import outputs

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent
ELSEWHERE = ("dashboards.yaml",)
"""Files that are reviewed elsewhere: tests/plan/dashboards has each dashboard once."""
STACKS = ("local", "aws-dev", "aws-prod", "openstack-dev", "onprem-dev")
IN_FULL = "aws-prod"
_PROGRAM = re.compile(r"^  (\w+\.py): \|\n((?:    .*\n|\n)+)", re.MULTILINE)


def test_every_stack_is_here() -> None:
    assert {path.name for path in ROOT.glob("Pulumi.*.yaml")} == {f"Pulumi.{stack}.yaml" for stack in STACKS}


@pytest.fixture(scope="module")
def in_full() -> dict[str, str]:
    return rendered(IN_FULL)


@pytest.mark.parametrize("stack", STACKS)
def test_the_stack_is_what_was_reviewed(in_full: dict[str, str], stack: str) -> None:
    files, folder = in_full, GOLDEN / stack
    if stack != IN_FULL:
        files = {name: text for name, text in rendered(stack).items() if name not in in_full}
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        shutil.rmtree(folder, ignore_errors=True)
        for name, text in files.items():
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    assert {path.name for path in folder.glob("*")} == set(files)
    for name, text in files.items():
        assert (folder / name).read_bytes() == text.encode(), f"{name} differs from {folder}"


def rendered(stack: str) -> dict[str, str]:
    env = load(ROOT / f"Pulumi.{stack}.yaml")
    files = render(env, read_keys(env))
    return {name: _PROGRAM.sub(_sum, text) for name, text in files.items() if name not in ELSEWHERE}


def _sum(found: re.Match[str]) -> str:
    """Checksum line of a program, after checking that it is the file of this name."""
    file = SOURCE / found[1]
    assert re.sub("^    ", "", found[2], flags=re.MULTILINE) == file.read_text(encoding="utf-8"), file
    return f"  {found[1]}: sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}\n"


@pytest.mark.tools
def test_the_bytes_do_not_depend_on_the_process() -> None:
    script = (
        "import hashlib, pathlib; from infra.config import load; from infra.plan.render import render;"
        "files = render(load(pathlib.Path('Pulumi.aws-prod.yaml')));"
        "print(hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest())"
    )
    assert len(outputs(script)) == 1
