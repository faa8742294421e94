"""Additions to the text of manifests: nothing that is written changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuform.manifests import documents, edit
from gpuform.manifests.edit import Addition

pytestmark = pytest.mark.unit

ENTRY = {"key": "nvidia.com/gpu", "operator": "Exists"}


def add(text: str, *places: tuple[tuple[str | int, ...], Any]) -> str:
    (document, *_) = documents.parse("f", text)
    result, left_out = edit.add("f", text, [Addition(document, keys, value) for keys, value in places])
    assert left_out == []
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: A\nspec:\n  a: 1  # one\n\n# end\n", "kind: A\nspec:\n  a: 1  # one\n  t:\n  - x\n\n# end\n"),
        ("kind: A\nspec:\n    t:\n    - b\n    c: 1", "kind: A\nspec:\n    t:\n    - b\n    - x\n    c: 1"),
        ("kind: A\nspec:\n  t:\n  - b", "kind: A\nspec:\n  t:\n  - b\n  - x"),
        ("kind: A\nspec: {t: [b]}\n", "kind: A\nspec: {t: [b, x]}\n"),
        ("kind: A\nspec: {t: [b, ]}\n", "kind: A\nspec: {t: [b, x ]}\n"),
        ("kind: A\nspec: {}\n", 'kind: A\nspec: {"t": ["x"]}\n'),
        ("kind: A\r\nspec:\r\n  a: 1\r\n", "kind: A\r\nspec:\r\n  a: 1\r\n  t:\r\n  - x\r\n"),
        ("kind: A\nspec:\n  a: |\n    b\n\n---\n", "kind: A\nspec:\n  a: |\n    b\n\n  t:\n  - x\n---\n"),
        ("kind: A\nspec:\n  a: b\n    c\n", "kind: A\nspec:\n  a: b\n    c\n  t:\n  - x\n"),
        ('{"kind": "A", "spec": {\n  "a": 1\n}}\n', '{"kind": "A", "spec": {\n  "a": 1, "t": ["x"]\n}}\n'),
        ("kind: A\nspec:\n- t:\n  - b\n", None),
        ("kind: A\nspec:\n  t:\n", None),
        ("kind: A\nspec:\n  t: &t [b]\nc: *t\n", None),
        ("b: &b {t: [y]}\nkind: A\nspec:\n  <<: *b\n", None),
        ("kind: A\nspec: {\n  a: 1 # {b\n}\n", None),
    ],
)  # fmt: skip
def test_an_entry_goes_where_the_list_is_or_would_be(text: str, expected: str | None) -> None:
    if expected is not None:
        assert add(text, (("spec", "t"), ["x"])) == expected
        return
    (document,) = documents.parse("f", text)
    result, left_out = edit.add("f", text, [Addition(document, ("spec", "t"), ["x"])])
    assert (result, len(left_out)) == (text, 1), "what cannot be added is left out, and said"


def test_additions_below_one_missing_key_come_together() -> None:
    text = "kind: A\nspec:\n  services:\n    w: {replicas: 2}\n"
    at = ("spec", "services", "w", "pod")
    result = add(text, ((*at, "t"), [ENTRY]), ((*at, "s"), "one"), ((*at, "t"), [ENTRY, "x"]))
    assert "w: {replicas: 2, pod: {s: one, t: [{key: nvidia.com/gpu, operator: Exists}, x]}}" in result


def test_one_object_of_a_list_and_of_several_documents() -> None:
    text = "kind: List\nitems:\n- kind: A\n  metadata: {name: a}\n- kind: A\n  metadata: {name: b}\n"
    found = documents.parse("f", f"kind: B\n---\n{text}---\nkind: C\n")
    assert [(one.title, one.index) for one in found] == [("B", 0), ("A a", 1), ("A b", 1), ("C", 2)]
    result, _ = edit.add("f", f"kind: B\n---\n{text}---\nkind: C\n", [Addition(found[2], ("spec", "t"), 1)])
    assert "metadata: {name: b}\n  spec:\n    t: 1\n---" in result


KEYS = st.sampled_from(["a", "b", "c d", "x.y/z", "1", "no"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["", "x: #", "a\nb\n", "'", "é", "- "])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(
    spec=st.dictionaries(KEYS, VALUES, min_size=1, max_size=4),
    path=st.lists(KEYS, min_size=1, max_size=3),
    value=st.one_of(st.just([ENTRY]), st.just("v"), st.just({"k": [1]})),
    style=st.sampled_from([None, True, False]),
    indent=st.integers(2, 5),
)
def test_all_that_was_written_stays(
    spec: dict[str, Any], path: list[str], value: Any, style: bool | None, indent: int
) -> None:
    old = {"kind": "A", "spec": spec, "z": [1]}
    text = yaml.safe_dump(old, default_flow_style=style, indent=indent, sort_keys=False, allow_unicode=True)
    (document,) = documents.parse("f", text)
    result, left_out = edit.add("f", text, [Addition(document, ("spec", *path), value)])
    written = iter(result)
    assert all(character in written for character in text), "the old text is a subsequence of the new one"
    expected = copy.deepcopy(old)
    if not left_out:
        target: Any = expected["spec"]
        for key in path[:-1]:
            target = target.setdefault(key, {})
        old_value = target.get(path[-1])
        target[path[-1]] = [*old_value, *value] if isinstance(old_value, list) else value
    assert yaml.safe_load(result) == expected
