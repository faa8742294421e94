"""YAML files of this package, completed with the values of an environment.

``@name`` in a text is the value of that name (``@{name}`` before a letter); a text that is nothing else is
the value itself, a list for example. An entry of a list or a mapping with ``when: NAME`` is left out unless
that value is true. One with ``each: LIST`` is repeated, and the fields of an item are values inside it.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.strict_yaml import Loader

Values = Mapping[str, Any]


class _Template(string.Template):
    delimiter = "@"


@cache
def read(path: Path) -> Any:
    """The content of a file of ours, read once. Callers must not change it."""
    return yaml.load(path.read_bytes(), Loader)  # noqa: S506  (a SafeLoader)


def fill(value: Any, values: Values) -> Any:
    """A copy without names. KeyError for an unknown one, ValueError for an ``@`` without a name.

    ValueError for a null too: in ``{a: b, c}`` it is half of a text that needs quotes.
    """
    if value is None:
        raise ValueError("an entry has no value; quote a text with commas")
    if isinstance(value, list):
        return [fill(item, scope) for item in value for scope in _scopes(item, values)]
    if isinstance(value, dict):
        return {
            fill(key, scope): fill(item, scope)
            for key, item in value.items()
            if key not in ("when", "each")
            for scope in _scopes(item, values)
        }
    if not isinstance(value, str) or "@" not in value:
        return value
    return (
        values[value[1:]] if value[1:] in values and value[0] == "@" else _Template(value).substitute(values)
    )


def with_let(definitions: Mapping[str, Any], values: Values) -> Values:
    """``values`` and those of ``definitions``, each completed with the ones before it."""
    known = dict(values)
    for name, value in definitions.items():
        known[name] = fill(value, known)
    return known


def _scopes(entry: Any, values: Values) -> Iterator[Values]:
    """The values for each repetition of an entry."""
    if not isinstance(entry, dict):
        yield values
    elif "when" not in entry or values[entry["when"]]:
        items = fill(entry["each"], values) if "each" in entry else [{}]
        yield from ({**values, **item} for item in items)
