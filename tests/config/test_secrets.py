"""A secret that was pasted into an environment is in no message, and in no output where a path belongs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import KEY, parse
from infra.model.base.errors import InputError
from tests.config.edits import message
from tests.plan.fields import ENVIRONMENTS, HOSTS

pytestmark = pytest.mark.unit

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
    (HOSTS, "cluster/kubeconfig"),
    (HOSTS, "cluster/private_key"),
    (HOSTS, "cluster/known_hosts"),
    (HOSTS, "cluster/toolkit/repository/key"),
]


def with_text(environment: dict[str, Any], place: tuple[str | int, ...], text: str) -> dict[str, Any]:
    changed: Any = copy.deepcopy(environment)
    here = changed
    for part in place[:-1]:
        here = here[part]
    here[place[-1]] = text
    return dict(changed)


def environments() -> Iterator[dict[str, Any]]:
    yield from (EXISTING, HOSTS)
    root = Path(__file__).parents[2]
    for file in sorted(root.glob("tests/config/good_*.yaml")):
        yield yaml.safe_load(file.read_text())
    for file in sorted(root.glob("Pulumi.*.yaml")):
        yield yaml.safe_load(file.read_text())["config"][KEY]
    yield from ENVIRONMENTS.values()


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
    fields = {
        tuple("*" if isinstance(part, int) else part for part in place): (environment, place)
        for environment in environments()
        for place in leaves(environment)
    }
    expected = []
    for environment, place in fields.values():
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
