"""Every field of an AWS environment changes something that the program registers."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from tests.components.aws_fields import ROWS, START, Edit
from tests.components.recording import record

pytestmark = [pytest.mark.unit, pytest.mark.nightly]


def changed(mapping: dict[str, Any], edits: Iterable[Edit]) -> dict[str, Any]:
    """A copy with a value set at each path; ``...`` removes the key."""
    result = copy.deepcopy(mapping)
    for path, value in edits:
        here: Any = result
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        for part in parents:
            here = here[part]
        if value is ...:
            del here[last]
        elif isinstance(here, list) and last == len(here):
            here.append(copy.deepcopy(value))
        else:
            here[last] = copy.deepcopy(value)
    return result


@cache
def program(text: str) -> frozenset[str]:
    return frozenset(
        json.dumps([found.type, found.name, found.inputs], sort_keys=True, default=str)
        for found in record(json.loads(text)).resources
    )


@pytest.mark.parametrize("row", ROWS, ids=[".".join(row) for row in ROWS])
def test_the_field_changes_the_program(row: tuple[str, str, str]) -> None:
    before, edit = ROWS[row]
    start = changed(START, before)
    assert program(json.dumps(start)) != program(json.dumps(changed(start, [edit])))
