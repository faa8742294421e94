from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gpuform.checkout.errors import InputError
from gpuform.stack.project import TARGETS, new_project
from infra.config import load, price_list
from infra.inventory import read_keys
from infra.plan.render import render

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("target", TARGETS)
def test_the_stack_of_each_target_renders_as_it_is(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "my clusters"
    files = new_project(folder, target)
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == set(files)
    assert (folder / "Pulumi.yaml").read_text().startswith('name: "my-clusters"\n')
    env = load(folder / f"Pulumi.{TARGETS[target].stack}.yaml")
    assert render(env, read_keys(env, folder), price_list(env))


@pytest.mark.parametrize("target", TARGETS)
def test_workflows_need_nothing_of_a_checkout(target: str, tmp_path: Path) -> None:
    new_project(tmp_path / "p", target)
    for file in (tmp_path / "p" / ".github").rglob("*.yml"):
        text = file.read_text()
        assert not re.search(r"\bmake\b|python3 -m gpuform|toolchain/|--policy-pack policies", text), file
        assert ("AWS_ROLE" in text) == (target == "aws" and file.stem in ("preview", "up", "drift")), file
        steps = yaml.safe_load(text)
        assert "runs" in steps or steps["jobs"]


def test_the_version_is_pinned(tmp_path: Path) -> None:
    new_project(tmp_path / "p", "aws")
    pinned = (tmp_path / "p" / "requirements.txt").read_text()
    assert re.fullmatch(r"gpuform\[aws,rehearse\]==\d+\.\d+\.\d+\n", pinned)


@pytest.mark.parametrize(
    ("target", "before", "message"),
    [
        ("azure", "", "--target: 'azure' is no target; name one of local, aws, openstack, hosts, existing"),
        ("local", "README.md", "{}: is not empty; name a new folder"),
    ],
)
def test_bad_input_writes_nothing(tmp_path: Path, target: str, before: str, message: str) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    if before:
        (folder / before).touch()
    with pytest.raises(InputError) as error:
        new_project(folder, target)
    assert str(error.value) == message.format(folder)
    assert [path.name for path in folder.iterdir()] == [before] * bool(before)
