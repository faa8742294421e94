"""The environments of docs/examples (valid, without a warning), and the generated pages of docs/reference."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from docs.generate import PAGES, REFERENCE, page
from infra.config import load
from infra.model.checks.environment import warnings
from infra.model.gpu.models import GPUS
from infra.plan.inventory import key_paths
from infra.plan.render import render
from infra.schema import stack_schema
from tests.docs.pages import ROOT

pytestmark = pytest.mark.unit

EXAMPLES = sorted((ROOT / "docs/examples").glob("*.yaml"))


def test_there_are_eleven_and_the_page_has_each() -> None:
    text = (ROOT / "docs/howto/examples.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) == 11
    assert all(f"(../examples/{example.name})" in text for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_and_renders(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    jsonschema.validate(yaml.safe_load(text), stack_schema())
    env = load(example)
    assert warnings(env) == ()
    keys = dict(key_paths(env)) if env.cluster.kind == "hosts" else {}
    assert "workloads.yaml" in render(env, {path: "" for path in keys.values()})


# GPUs with MIG, and their number of smallest slices.
CUT = {
    **dict.fromkeys(("A100-PCIE-40GB", "A100-SXM4-40GB", "A100-PCIE-80GB", "A100-SXM4-80GB"), 7),
    **dict.fromkeys(("H100-PCIe", "H100-SXM", "H100-NVL", "GH200", "H200", "B200", "GB200", "B300"), 7),
    **{"A30": 4, "RTX-PRO-4500": 2, "RTX-PRO-6000": 4},
}


def committed(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    assert committed(name) == page(name), "run: make docs"


def rows(name: str) -> dict[str, list[str]]:
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in committed(name).splitlines()
        if line.startswith("|")
    ]
    found: dict[str, list[str]] = {}
    for first, *rest in cells:
        found.setdefault(first, rest)  # a GPU's slices are in a later table
    return found


def test_the_environments_page_has_every_key() -> None:
    for name, block in stack_schema()["$defs"].items():
        for key, value in block["properties"].items():
            shown = f"`{value['const']}`" if key == "kind" else rf"`([\w.\[\]]+\.)?{key}`"
            found = re.search(rf"\| {shown}( \(default\))? \|", committed("environment.md"))
            assert found, f"{name}.{key}"


@pytest.mark.parametrize("gpu", GPUS)
def test_which_gpu_can_be_shared_how(gpu: str) -> None:
    _, exclusive, time_slicing, mps, mig, share, dra = rows("sharing.md")[gpu]
    assert exclusive == time_slicing == mps == dra == "yes"
    assert mig == (f"yes, {CUT[gpu]} slices" if gpu in CUT else "no<sup>1</sup>")
    assert share == ("yes" if gpu in CUT else "no<sup>1</sup>")
    assert "\n1. The GPU does not support MIG.\n" in committed("sharing.md")


def test_what_several_owners_may_not_share() -> None:
    found = rows("sharing.md")["with `trust: multi`"][1:]
    assert [cell.partition("<")[0] for cell in found] == ["yes", "no", "no", "yes", "no", "yes"]
