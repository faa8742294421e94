"""What the plan's YAML files may say and become, and what the programs in ConfigMaps may import."""

from __future__ import annotations

import ast
import sys
from typing import Any

import pytest
import yaml

from infra.plan import health, notebooks, pool_keeper, readiness_gate
from infra.plan.program import SOURCE
from infra.plan.templates import fill, with_let

pytestmark = pytest.mark.unit

VALUES = {"pool": "a", "gpus": 2, "empty": [], "pools": [{"pool": "b"}, {"pool": "c"}]}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("'x{@pool, y} @{pool}_z {{pool}} $pool'", "x{a, y} a_z {{pool}} $pool"),
        ("'@gpus'", 2),
        ("'@gpus of @pool'", "2 of a"),
        ("[{when: empty, a: 1}, {when: gpus, b: 1}, 3]", [{"b": 1}, 3]),
        ("{one: {when: empty, a: 1}, 0.9: red}", {0.9: "red"}),
        ("[{each: '@pools', of: '@pool'}, '@pool']", [{"of": "b"}, {"of": "c"}, "a"]),
        ("{'@n': {each: [{n: 1}, {n: '@gpus'}], of: '@n'}}", {1: {"of": 1}, 2: {"of": 2}}),
    ],
)
def test_names_conditions_and_repetitions(given: str, made: Any) -> None:
    assert fill(yaml.safe_load(given), VALUES) == made


@pytest.mark.parametrize("given", ["'@other'", "{when: other}", "a @ b", "{help: one, two}"])
def test_what_is_wrong_is_found(given: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        fill([yaml.safe_load(given)], VALUES)


def test_a_name_may_use_those_before_it() -> None:
    let = yaml.safe_load("{x: '@pool/@gpus', y: '(@x)'}")
    assert with_let(let, VALUES)["y"] == "(a/2)"


@pytest.mark.parametrize(
    ("files", "file"),
    [(item.FILES, file) for item in (health, notebooks, pool_keeper, readiness_gate) for file in item.FILES],
)
def test_a_program_imports_the_standard_library_and_the_files_beside_it(
    files: tuple[str, ...], file: str
) -> None:
    names = set()
    for statement in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            names |= {item.name.partition(".")[0] for item in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module == "infra.incluster":
            names |= {entry.name for entry in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names.add((statement.module or "").removeprefix("infra.incluster.").partition(".")[0])
    assert names <= sys.stdlib_module_names | {name.removesuffix(".py") for name in files}
