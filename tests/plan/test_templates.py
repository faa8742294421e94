"""What YAML files of the plan may say, and what they become."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.plan.templates import complete, named

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
    assert complete(yaml.safe_load(given), VALUES) == made


@pytest.mark.parametrize("given", ["'@other'", "{when: other}", "a @ b", "{help: one, two}"])
def test_what_is_wrong_is_found(given: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        complete([yaml.safe_load(given)], VALUES)


def test_a_name_may_use_those_before_it() -> None:
    let = yaml.safe_load("{x: '@pool/@gpus', y: '(@x)'}")
    assert named(let, VALUES)["y"] == "(a/2)"
