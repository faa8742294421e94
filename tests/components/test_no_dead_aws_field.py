"""Every field of an AWS environment changes something that the program registers."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from tests.components.aws_fields import ROWS, START
from tests.components.recording import record
from tests.config.edits import changed

pytestmark = [pytest.mark.unit, pytest.mark.nightly]


def edited(path: str, value: Any) -> dict[str, Any]:
    return {"at": path, "remove": True} if value is ... else {"at": path, "put": value}


@cache
def program(text: str) -> frozenset[str]:
    return frozenset(
        json.dumps([resource.type, resource.name, resource.inputs], sort_keys=True, default=str)
        for resource in record(json.loads(text)).resources
    )


@pytest.mark.parametrize("row", ROWS, ids=[".".join(row) for row in ROWS])
def test_the_field_changes_the_program(row: tuple[str, str, str]) -> None:
    before, edit = ROWS[row]
    start = changed(START, *(edited(*edit_) for edit_ in before))
    assert program(json.dumps(start)) != program(json.dumps(changed(start, edited(*edit))))
