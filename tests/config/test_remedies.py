"""A refusal's remedy helps: whoever follows it to the letter is not refused for the same reason again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from infra.config import parse
from infra.model.errors import InputError
from tests.config.remedies import followed
from tests.config.tables import ROWS, TABLES

pytestmark = pytest.mark.unit

Json = dict[str, Any]


def refused(environment: Json) -> str:
    """The message; empty if the environment is accepted."""
    try:
        parse(environment)
    except InputError as error:
        return str(error)
    return ""


def tried(table: str) -> Iterator[tuple[str, str, list[Json]]]:
    for row in ROWS[table]:
        made = TABLES[table](row)
        said = refused(made)
        yield from ((said, *one) for one in followed(made, said))


@pytest.mark.parametrize("table", TABLES)
def test_a_followed_remedy_does_not_end_in_the_same_refusal(table: str) -> None:
    again = [
        f"{said}\n  followed: {words}"
        for said, words, after in tried(table)
        if {refused(one).partition("; ")[0] for one in after} == {said.partition("; ")[0]}
    ]
    assert not again, "\n".join(again)


def test_enough_remedies_can_be_followed() -> None:
    """Else the test above would prove nothing. The others need a decision or a name."""
    every = [row for rows in ROWS.values() for row in rows]
    able = {said for table in TABLES for said, _, _ in tried(table)}
    assert len(able) > len(every) * 0.45
