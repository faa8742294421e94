"""Each row of the tables is refused at its place, and its remedy helps; no message repeats a secret."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import KEY, parse
from infra.model.base.errors import InputError
from infra.model.checks.environment import warnings
from tests.build.edits import changed, message
from tests.config.remedies import followed
from tests.config.tables import ENVIRONMENTS, GOOD, ROWS, TABLES, read
from tests.plan import fields

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("mapping", ENVIRONMENTS)
def test_the_good_ones_are_good_and_the_declared_text_says_the_same_again(mapping: dict[str, Any]) -> None:
    env = parse(mapping)
    assert parse(env.resolved()) == env


def test_the_tables_are_long_and_repeat_nothing() -> None:
    rows = [(table, repr(row)) for table in TABLES for row in ROWS[table]]
    assert len(set(rows)) == len(rows) > 700


@pytest.mark.parametrize(
    ("table", "row"),
    [
        pytest.param(table, row, id=f"{table} {number} {row.get('at', '')}")
        for table in TABLES
        for number, row in enumerate(ROWS[table])
    ],
)
def test_message(table: str, row: dict[str, Any]) -> None:
    text = message(TABLES[table](row), row.get("errors", 1))
    assert text == row.get("whole", text)
    assert text.startswith(row.get("said", text))


Json = dict[str, Any]


def refused(environment: Json) -> str:
    """The message; empty if the environment is accepted."""
    try:
        parse(environment)
    except InputError as error:
        return str(error.errors[0])
    return ""


@cache
def tried(table: str) -> Sequence[tuple[str, str, list[Json]]]:
    found: list[tuple[str, str, list[Json]]] = []
    for row in ROWS[table]:
        made = TABLES[table](row)
        text = refused(made)
        found += [(text, *item) for item in followed(made, text)]
    return found


@pytest.mark.parametrize("table", TABLES)
def test_a_followed_remedy_does_not_end_in_the_same_refusal(table: str) -> None:
    again = [
        f"{expected}\n  followed: {words}"
        for expected, words, after in tried(table)
        if {refused(item).partition("; ")[0] for item in after} == {expected.partition("; ")[0]}
    ]
    assert not again, "\n".join(again)


def test_enough_remedies_can_be_followed() -> None:
    """Else the test above would prove nothing. The others need a decision or a name."""
    every = [row for rows in ROWS.values() for row in rows]
    able = {expected for table in TABLES for expected, _, _ in tried(table)}
    assert len(able) > len(every) * 0.45


@pytest.mark.parametrize(
    ("kind", "edits", "remedy", "ways"), read("helpful"), ids=[row[2][:60] for row in read("helpful")]
)
def test_each_alternative_of_a_remedy_leads_to_an_accepted_file(
    kind: str, edits: list[Json], remedy: str, ways: list[list[Json]]
) -> None:
    made = changed(GOOD[kind], *edits)
    text = refused(made)
    assert text.endswith(f"; {remedy}"), text
    assert {repr(way): refused(changed(made, *way)) for way in ways} == {repr(way): "" for way in ways}


def rows_of(name: str) -> Iterator[list[Any]]:
    """Rows of a table; one with ``each`` stands for several with the same place."""
    for row in read(name):
        values = row["each"] if isinstance(row, dict) else ()
        yield from ([*row["at"], value, *row.get("then", ())] for value in values)
        if not values:
            yield row


CONTRADICTIONS = list(rows_of("contradictions"))


def test_the_table_is_long_and_repeats_nothing() -> None:
    assert len({repr(row) for row in CONTRADICTIONS}) == len(CONTRADICTIONS) > 150


@pytest.mark.parametrize(
    "row", CONTRADICTIONS, ids=[f"{row[0]} {row[1]} {row[2]!a}"[:80] for row in CONTRADICTIONS]
)
def test_a_contradiction_is_refused_at_its_place(row: list[Any]) -> None:
    kind, place, value, *path = row
    with pytest.raises(InputError) as caught:
        parse(changed(GOOD[kind], {"at": place, "put": value}))
    assert caught.value.path == (path[0] if path else _path(place))


ACCEPTED = list(rows_of("accepted"))


@pytest.mark.parametrize("row", ACCEPTED, ids=[f"{row[0]} {row[1]} {row[2]!a}"[:80] for row in ACCEPTED])
def test_what_only_seems_wrong_is_accepted(row: list[Any]) -> None:
    kind, place, value, *more = row
    changes = changed(GOOD[kind], {"at": place, "put": value})
    before, added = warnings(parse(GOOD[kind])), more[0] if more else []
    required = [*(text for text in before if not text.startswith(_path(place))), *added]
    env = parse(changes)
    assert parse(env.resolved()).resolved() == env.resolved()
    assert [text for text in warnings(env) if not text.startswith((*before, *added))] == []
    assert [start for start in required if not any(text.startswith(start) for text in warnings(env))] == []


def _path(place: str) -> str:
    return re.sub(r"/(\d+)", r"[\1]", place).replace("/", ".")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8879", "http://localhost:8879/a", "http://[::1]:8879"])
def test_charts_may_come_by_http_from_this_machine_alone(url: str) -> None:
    assert parse(changed(GOOD["existing"], {"at": "gpu_operator/repository", "put": url}))


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ({"t4": 4}, ()),
        ({"t4": 5}, ("5 nvidia.com/gpu.shared, of which all nodes offer 4, limit nothing; use 4 or less",)),
        ({"mig": {"3g.20gb": 2}}, ("2 nvidia.com/mig-3g.20gb, of which all nodes offer 1",)),
    ],
)
def test_a_quota_that_limits_nothing_gets_a_warning(quota: dict[str, Any], expected: tuple[str, ...]) -> None:
    edit = {"at": "namespaces", "put": [{"name": "a", "quota": quota}]}
    found = warnings(parse(changed(GOOD["embedded"], edit)))
    assert len(found) == len(expected)
    for warning, fact in zip(found, expected, strict=True):
        assert warning.startswith(f"namespaces[0].quota: {fact}")


SECRET = "c4nary-4711"
PASTED = {
    "kubeconfig": f"apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user: {{token: {SECRET}}}\n",
    "JSON": f'{{"apiVersion": "v1", "kind": "Config", "users": [{{"user": {{"token": "{SECRET}"}}}}]}}',
    "private key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    "token": f"eyJhbGciOiJSUzI1NiIsImtpZCI6{SECRET * 30}",
}
EXISTING: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "existing", "kubeconfig": "/k", "context": "c"},
    "pools": [{"name": "a", "machine": "g4dn.xlarge", "selector": {"a": "b"}}],
}
PATHS = [
    (EXISTING, "cluster/kubeconfig"),
    (fields.HOSTS, "cluster/kubeconfig"),
    (fields.HOSTS, "cluster/private_key"),
    (fields.HOSTS, "cluster/known_hosts"),
    (fields.HOSTS, "cluster/toolkit/repository/key"),
]


def with_text(environment: dict[str, Any], place: tuple[str | int, ...], text: str) -> dict[str, Any]:
    changed: Any = copy.deepcopy(environment)
    here = changed
    for part in place[:-1]:
        here = here[part]
    here[place[-1]] = text
    return dict(changed)


def environments() -> Iterator[dict[str, Any]]:
    yield from (EXISTING, fields.HOSTS)
    root = Path(__file__).parents[2]
    for file in sorted(root.glob("tests/config/good_*.yaml")):
        yield yaml.safe_load(file.read_text())
    for file in sorted(root.glob("Pulumi.*.yaml")):
        yield yaml.safe_load(file.read_text())["config"][KEY]
    yield from fields.ENVIRONMENTS.values()


def leaves(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*place, key))
    else:
        yield place


@pytest.mark.parametrize("text", PASTED.values(), ids=PASTED)
@pytest.mark.parametrize(("environment", "at"), PATHS, ids=[at for _, at in PATHS])
def test_the_content_of_a_file_is_not_its_path(environment: dict[str, Any], at: str, text: str) -> None:
    wording = message(with_text(environment, tuple(at.split("/")), text))
    assert wording == f"{at.replace('/', '.')}: is not a path; give the path of the file, not its content"


@pytest.mark.parametrize("text", ["kubeconfig", "token"])
def test_no_message_repeats_what_may_be_a_secret(text: str) -> None:
    places = {
        tuple("*" if isinstance(part, int) else part for part in place): (environment, place)
        for environment in environments()
        for place in leaves(environment)
    }
    expected = []
    for environment, place in places.values():
        try:
            parse(with_text(environment, place, PASTED[text]))
        except InputError as error:
            expected.append(str(error))
    assert len(expected) > 150
    assert [item for item in expected if SECRET in item] == []


def test_a_text_of_one_line_is_repeated() -> None:
    assert "'GPU_1' is not a name" in message(with_text(EXISTING, ("name",), "GPU_1"))


@pytest.mark.parametrize("text", [PASTED["kubeconfig"], PASTED["private key"]])
def test_a_context_is_one_line(text: str) -> None:
    wording = message(with_text(EXISTING, ("cluster", "context"), text))
    assert wording.startswith("cluster.context: the given text is not a context name; write it as `kubectl")
