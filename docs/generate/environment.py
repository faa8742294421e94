"""A table row for every key of the environment, from the model's JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.schema import Schema, stack_schema

Row = tuple[str, str, str, str]
"""Key, value, default, meaning."""

_ROWS = ("| key | value | default | meaning |", "|---|---|---|---|")
_ROWS_BY_KIND = ("| kind | key | value | default | meaning |", "|---|---|---|---|---|")
_APART = "cluster"
"""The key with a table for each of its kinds; of other keys one table has the keys of all kinds."""
_LONGEST = 6  # names of an enumeration; longer ones are names of the catalogue


def lines() -> Iterator[str]:
    """Tables in Markdown, one section per key of the environment."""
    return _Page(stack_schema()["$defs"]).lines()


class _Page:
    """Nested mappings are rows with dotted keys; a choice between kinds is a section of its own."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._shown: dict[str, str] = {}
        """For each definition with rows, a link to them: a second use of it refers to the first."""
        self._choices: list[tuple[str, list[str]]] = []
        """Title and definitions of choices that are referred to and not yet shown."""

    def lines(self) -> Iterator[str]:
        yield from (self._words("Environment"), "", *_ROWS)
        properties = self._definitions["Environment"]["properties"]
        for key, value in properties.items():
            names = _names(value)
            words = f"[{_type(value)}]({_anchor(key)})" if names else _type(value)
            yield _line(f"`{key}`", words, self._default("Environment", key), value["description"])
        for key, value in properties.items():
            names = _names(value)
            if len(names) > 1:
                yield from self._choice("##", key, names)
            elif names:
                yield from ("", f"## {key}", "", self._words(names[0]), "", *_ROWS)
                yield from (_line(*row) for row in self._rows(names[0], "", key))
            while self._choices:
                yield from self._choice("###", *self._choices.pop(0))

    def _choice(self, level: str, title: str, names: Sequence[str]) -> Iterator[str]:
        yield from ("", f"{level} {title}", "", "| `kind` | meaning |", "|---|---|")
        kinds = {name: self._definitions[name]["properties"]["kind"] for name in names}
        for name, kind in kinds.items():
            words = f"`{kind['const']}`" + (" (default)" if "default" in kind else "")
            yield _line(words, self._words(name))
        if title != _APART:
            yield from ("", *_ROWS_BY_KIND, *self._together(title, names))
            return
        for name, kind in kinds.items():
            here = f"{title}: {kind['const']}"
            rows = list(self._rows(name, "", here))
            if rows:
                yield from ("", f"#{level} {here}", "", *_ROWS, *(_line(*row) for row in rows))

    def _together(self, title: str, names: Sequence[str]) -> Iterator[str]:
        """Each row once, with the kinds that have it."""
        before, owners = self._shown, dict[Row, list[str]]()
        for name in names:
            self._shown = dict(before)
            for row in self._rows(name, "", title):
                kind = self._definitions[name]["properties"]["kind"]["const"]
                owners.setdefault(row, []).append(f"`{kind}`")
        for row, kinds in owners.items():
            yield _line("all" if len(kinds) == len(names) else ", ".join(kinds), *row)

    def _rows(self, name: str, prefix: str, title: str) -> Iterator[Row]:
        """The rows of a definition, with those of the mappings in it."""
        for key, value in self._definitions[name]["properties"].items():
            path, default, meaning = f"{prefix}{key}", self._default(name, key), value.get("description", "")
            names = _names(value)
            if "const" in value:
                continue
            if not names:
                yield f"`{path}`", _type(value), default, meaning
            elif len(names) > 1 and "kind" not in self._definitions[names[0]]["properties"]:
                yield f"`{path}`", "mapping", default, meaning
                for other in names:
                    yield from self._rows(other, f"{path}.", title)
            elif len(names) > 1:
                self._choices.append((f"{title}: {key}", names))
                yield f"`{path}`", f"[mapping]({_anchor(f'{title}: {key}')})", default, meaning
            elif names[0] in self._shown:
                yield f"`{path}`", _type(value, f"as {self._shown[names[0]]}"), default, meaning
            else:
                inside = f"{path}{_suffix(value)}"
                self._shown[names[0]] = f"[`{title.partition(':')[0]}.{inside[:-1]}`]({_anchor(title)})"
                meaning = f"{meaning} {self._words(names[0])}".strip()
                yield f"`{path}`", _type(value), default, meaning
                yield from self._rows(names[0], inside, title)

    def _words(self, name: str) -> str:
        return " ".join(self._definitions[name].get("description", "").split())

    def _default(self, name: str, key: str) -> str:
        schema = self._definitions[name]
        if key in schema.get("required", []):
            return "required"
        default = schema["properties"][key].get("default")
        return "" if default is None else f"`{json.dumps(default, ensure_ascii=False)}`"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return "#" + re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _parts(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a value, without null; the value itself if it has none."""
    for key in ("oneOf", "anyOf"):
        if key in value:
            return [part for one in value[key] for part in _parts(one) if part.get("type") != "null"]
    return [value]


def _names(value: Mapping[str, Any]) -> list[str]:
    """The definitions that a value, its items or its entries refer to."""
    found: list[str] = []
    for part in _parts(value):
        inner = part.get("items") or part.get("additionalProperties")
        if "$ref" in part:
            found.append(part["$ref"].rpartition("/")[2])
        elif isinstance(inner, dict):
            found += _names(inner)
    return found


def _suffix(value: Mapping[str, Any]) -> str:
    """What leads from the key of a value to the keys of the mapping in it."""
    part = _parts(value)[-1]
    return "[]." if "items" in part else ".NAME." if "additionalProperties" in part else "."


def _type(value: Mapping[str, Any], ref: str = "mapping") -> str:
    """A type in words; ``ref`` is the word for a definition."""
    if "$ref" in value:
        return ref
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        names = [f"`{name}`" for name in value["enum"] if name is not None]
        return " \\| ".join(names) if len(names) <= _LONGEST else "name in the catalogue"
    if "oneOf" in value or "anyOf" in value:
        return " or ".join(dict.fromkeys(_type(part, ref) for part in _parts(value)))
    if value.get("type") == "array":
        return f"list of {_several(_type(value['items'], ref))}"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return "mapping" if inner is True else f"mapping of {_several(_type(inner or {}, ref))}"
    return _WORDS.get(value.get("type", ""), "text")


def _several(words: str) -> str:
    return re.sub(r"(^|(?<= or ))(mapping|whole number|name)\b", r"\2s", words)


_WORDS = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text"}
