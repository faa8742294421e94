"""The environments of docs/examples: each is valid, has no warning, and renders."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from infra import schema
from infra.config import load
from infra.model.checks.environment import warnings
from infra.plan.inventory import key_paths
from infra.plan.render import render
from tests.docs.pages import ROOT

pytestmark = pytest.mark.unit

EXAMPLES = sorted((ROOT / "docs/examples").glob("*.yaml"))


def test_there_are_ten_and_the_page_has_each() -> None:
    page = (ROOT / "docs/howto/examples.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) == 10
    assert all(f"(../examples/{example.name})" in page for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_and_renders(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    jsonschema.validate(yaml.safe_load(text), schema.stack_schema())
    env = load(example)
    assert warnings(env) == ()
    keys = dict(key_paths(env)) if env.cluster.kind == "hosts" else {}
    assert "workloads.yaml" in render(env, {path: "" for path in keys.values()})
