"""A refusal's remedy helps: whoever follows it to the letter is not refused for the same reason again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from infra.config import parse
from infra.model.errors import InputError
from tests.config import (
    test_bad_aws,
    test_bad_health,
    test_bad_hosts,
    test_bad_input,
    test_bad_monitoring,
    test_bad_openstack,
    test_bad_operator,
    test_bad_queues,
    test_bad_scheduling,
)
from tests.config.edits import changed
from tests.config.remedies import followed

pytestmark = pytest.mark.unit

Row = dict[str, Any]
Json = dict[str, Any]


def edited(good: Json) -> Callable[[Row], Json]:
    return lambda row: changed(good, row, *row.get("and", ()))


def scheduled(row: Row) -> Json:
    return changed({**test_bad_scheduling.GOOD[row["of"]], **row.get("and", {})}, row)


def with_health(row: Row) -> Json:
    return {**test_bad_health.GOOD[row["of"]], **row.get("and", {}), row.get("at", "health"): row["put"]}


def monitored(row: Row) -> Json:
    return {**test_bad_monitoring.GOOD[row["of"]], **row.get("and", {}), "monitoring": row["put"]}


TABLES: Mapping[str, tuple[list[Json], Callable[[Row], Json]]] = {
    "aws": (test_bad_aws.ROWS, edited(test_bad_aws.GOOD)),
    "health": (test_bad_health.ROWS, with_health),
    "hosts": (test_bad_hosts.ROWS, edited(test_bad_hosts.GOOD)),
    "input": (test_bad_input.ROWS, edited(test_bad_input.good())),
    "monitoring": (test_bad_monitoring.ROWS, monitored),
    "openstack": (test_bad_openstack.ROWS, edited(test_bad_openstack.GOOD)),
    "operator": (test_bad_operator.ROWS, test_bad_operator.environment),
    "queues": (test_bad_queues.ROWS, edited(test_bad_queues.GOOD)),
    "scheduling": (test_bad_scheduling.ROWS, scheduled),
}
"""The tables of refusals, and what makes a row's environment."""


def refused(environment: Json) -> str:
    """The message; empty if the environment is accepted."""
    try:
        parse(environment)
    except InputError as error:
        return str(error)
    return ""


def tried(table: str) -> Iterator[tuple[str, str, list[Json]]]:
    rows, made = TABLES[table]
    for row in rows:
        if said := row.get("said"):
            yield from ((said, *one) for one in followed(made(row), said))


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
    every = [row for rows, _ in TABLES.values() for row in rows]
    able = {said for table in TABLES for said, _, _ in tried(table)}
    assert len(able) > len(every) * 0.45
