"""Every stack rendered, byte for byte.

GPUFORM_UPDATE_GOLDEN=1 writes the files again; read the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.config import load
from infra.inventory import keys
from infra.plan.render import render
from tests.plan.same_bytes import printed

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent
ELSEWHERE = ("dashboards.yaml",)
"""Files that are reviewed elsewhere: tests/plan/dashboards has each dashboard once."""
STACKS = ("local", "aws-dev", "aws-prod", "openstack-dev", "onprem-dev")


def test_every_stack_is_here() -> None:
    assert {path.name for path in ROOT.glob("Pulumi.*.yaml")} == {f"Pulumi.{stack}.yaml" for stack in STACKS}


@pytest.mark.parametrize("stack", STACKS)
def test_the_stack_is_what_was_reviewed(stack: str) -> None:
    folder = GOLDEN / stack
    env = load(ROOT / f"Pulumi.{stack}.yaml")
    files = {name: text for name, text in render(env, keys(env)).items() if name not in ELSEWHERE}
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    assert {path.name for path in folder.iterdir()} == set(files)
    for name, text in files.items():
        assert (folder / name).read_bytes() == text.encode(), f"{name} differs from {folder}"


@pytest.mark.tools
def test_the_bytes_do_not_depend_on_the_process() -> None:
    script = (
        "import hashlib, pathlib; from infra.config import load; from infra.plan.render import render;"
        "files = render(load(pathlib.Path('Pulumi.aws-prod.yaml')));"
        "print(hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest())"
    )
    assert len(printed(script)) == 1
