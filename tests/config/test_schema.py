from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from infra import schema

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "made"),
    [(schema.SCHEMA_FILE, schema.schema_text), (schema.PAGE_FILE, schema.page_text)],
)
def test_what_is_committed_is_what_the_model_says(name: str, made: Any) -> None:
    committed = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert committed == made(), "run: python -m infra.schema docs/reference"


@pytest.mark.parametrize("stack", ["local", "aws-dev", "aws-prod", "onprem-dev", "openstack-dev"])
def test_a_stack_points_to_the_schema_and_obeys_it(stack: str) -> None:
    text = (ROOT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=docs/reference/environment.schema.json"
    jsonschema.Draft202012Validator.check_schema(schema.stack_schema())
    jsonschema.validate(yaml.safe_load(text), schema.stack_schema())


@pytest.mark.parametrize("kind", ["aws", "hosts", "openstack"])
def test_what_the_parser_takes_an_editor_takes(kind: str) -> None:
    text = (Path(__file__).parent / f"good_{kind}.yaml").read_text(encoding="utf-8")
    document = {"config": {"gpuform:environment": yaml.safe_load(text)}}
    jsonschema.validate(document, schema.stack_schema())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("replicas: 4}", "replicas: 1}", "1 is less than the minimum of 2"),
        ("kind: embedded", "kind: aws", "is not valid under any of the given schemas"),
        ("gpu_taint: ", "gpu_tant: ", "'gpu_tant' was unexpected"),
    ],
)
def test_an_editor_sees_what_is_wrong(old: str, new: str, message: str) -> None:
    text = (ROOT / "Pulumi.local.yaml").read_text(encoding="utf-8")
    assert old in text
    document = yaml.safe_load(text.replace(old, new))
    errors = list(jsonschema.Draft202012Validator(schema.stack_schema()).iter_errors(document))
    said = json.dumps([leaf.message for error in errors for leaf in leaves(error)])
    assert message in said


def leaves(error: jsonschema.ValidationError) -> list[jsonschema.ValidationError]:
    return [error, *(leaf for inner in error.context or [] for leaf in leaves(inner))]


def test_the_page_has_every_key() -> None:
    page = schema.page_text()
    for name, block in schema.stack_schema()["$defs"].items():
        for key, value in block["properties"].items():
            shown = f"`{value['const']}`" if key == "kind" else rf"`([\w.\[\]]+\.)?{key}`"
            assert re.search(rf"\| {shown}( \(default\))? \|", page), f"{name}.{key}"
