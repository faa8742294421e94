"""Adds keys and list entries to the text of a manifest; nothing that is written there is changed.

A YAML library that writes a document anew keeps its comments, and changes its indentation, quotes and line
breaks. So lines are inserted at positions that the parser gives, and the result is parsed again: it must have
the old value and what was added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from gpuform.manifests.documents import Document, Keys, child, parse, shared_nodes
from infra.plan.sharing import to_yaml


@dataclass(frozen=True)
class Addition:
    """A value for a key that is not there, or further entries of a list, which may not be there either."""

    document: Document
    keys: Keys
    value: Any
    """A list is appended to one that is there."""


class CannotAdd(Exception):
    """What cannot be added without a change to what is written; the text says why."""


def add(file: str, text: str, additions: Iterable[Addition]) -> tuple[str, list[tuple[Addition, str]]]:
    """The text with the additions, and those that were left out, with the reason."""
    left_out: list[tuple[Addition, str]] = []
    done: list[Addition] = []
    lines = _Lines(text)
    places: dict[tuple[int, Any], tuple[yaml.CollectionNode, Any]] = {}
    for addition in _merged(additions):
        try:
            node, value = lines.place(addition)
        except CannotAdd as error:
            left_out.append((addition, str(error)))
            continue
        done.append(addition)
        if isinstance(value, list):
            places[id(node), None] = (node, value)
        else:
            (key,) = value
            _, around = places.setdefault((id(node), key), (node, {}))
            _merge(around, value)
    parts, position = [], 0
    inserted = [lines.insertion(node, value) for node, value in places.values()]
    for offset, _, words in sorted(inserted, key=lambda entry: entry[:2]):  # of one line the deepest first
        parts += [text[position:offset], words]
        position = offset
    result = "".join([*parts, text[position:]])
    _require_only_added(file, text, result, done)
    return result, left_out


def _merge(target: dict[Any, Any], value: dict[Any, Any]) -> None:
    for key, item in value.items():
        if isinstance(item, dict) and isinstance(target.get(key), dict):
            _merge(target[key], item)
        else:
            target[key] = item


def _merged(additions: Iterable[Addition]) -> Iterator[Addition]:
    """Entries for one list together."""
    lists: dict[tuple[int, Keys], Addition] = {}
    for addition in additions:
        if not isinstance(addition.value, list):
            yield addition
            continue
        place = id(addition.document), addition.keys
        if place in lists:
            new = [item for item in addition.value if item not in lists[place].value]
            lists[place].value.extend(new)
        else:
            lists[place] = Addition(addition.document, addition.keys, list(addition.value))
    yield from lists.values()


class _Lines:
    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._starts = [0]
        for position, character in enumerate(text):
            if character == "\n":
                self._starts.append(position + 1)
        self._shared: dict[int, set[int]] = {}

    def place(self, addition: Addition) -> tuple[yaml.CollectionNode, Any]:
        """The list or mapping that gets more, and the entries or the key with its value."""
        root = addition.document.root
        if id(root) not in self._shared:
            self._shared[id(root)] = shared_nodes(root)
        node, rest = root, [*addition.document.at, *addition.keys]
        while rest:
            self._require_own(node, root)
            found = child(node, rest[0])
            if found is None:
                break
            inner = found[1]
            if _is_empty(inner):
                raise CannotAdd(f"{rest[0]} is there, without a value")
            node = inner
            del rest[0]
        self._require_own(node, root)
        if isinstance(node, yaml.CollectionNode) and node.flow_style and "#" in self._inside(node)[0]:
            raise CannotAdd("a comment may stand before the bracket that closes it")
        value = addition.value
        if not rest:
            if isinstance(value, list) and isinstance(node, yaml.SequenceNode):
                return node, value
            raise CannotAdd("it is there already")
        if not isinstance(node, yaml.MappingNode) or any(isinstance(key, int) for key in rest):
            raise CannotAdd(f"{rest[0]} has no place there")
        for key in reversed(rest):
            value = {key: value}
        return node, value

    def insertion(self, node: yaml.CollectionNode, value: Any) -> tuple[int, int, str]:
        """Where to insert, as a position in the text; how deep, ascending; and what."""
        if node.flow_style or not node.value:
            return self._into_flow(node, value)
        first = node.value[0]
        column = first[0].start_mark.column if isinstance(first, tuple) else node.start_mark.column
        return self._after(node, to_yaml(value), column)

    def _require_own(self, node: yaml.Node, root: yaml.Node) -> None:
        if id(node) in self._shared[id(root)]:
            raise CannotAdd("an alias uses that part of the file again")
        if isinstance(node, yaml.MappingNode):
            inside = range(node.start_mark.index, node.end_mark.index)
            if any(name.start_mark.index not in inside for name, _ in node.value):
                raise CannotAdd("the object around it has a merge key (<<)")

    def _into_flow(self, node: yaml.CollectionNode, value: Any) -> tuple[int, int, str]:
        """Before the bracket that closes it; as JSON where the keys around it are quoted."""
        inside, end = self._inside(node)
        end -= len(inside) - len(inside.rstrip())
        before = "" if not node.value else " " if inside.rstrip().endswith(",") else ", "
        return end, 0, before + _flow(value, inside.lstrip(" \r\n{[")[:1] in ("", '"'))[1:-1]

    def _inside(self, node: yaml.CollectionNode) -> tuple[str, int]:
        """What stands between brackets, and where the closing one is."""
        end = self._offset(node.end_mark) - 1
        return self._text[self._offset(node.start_mark) + 1 : end], end

    def _after(self, node: yaml.Node, block: str, column: int) -> tuple[int, int, str]:
        """After the last line of a block, indented as its entries are."""
        line = _last_line(node) + 1
        indent = " " * column
        text = "".join(f"{indent}{part}{self._newline}" for part in block.splitlines())
        if line < len(self._starts):
            return self._starts[line], -column, text
        ends_open = not self._text.endswith("\n")
        return (
            len(self._text),
            -column,
            (self._newline + text.removesuffix(self._newline)) if ends_open else text,
        )

    def _offset(self, mark: yaml.Mark) -> int:
        return self._starts[mark.line] + mark.column


def _flow(value: Any, json_style: bool) -> str:
    if json_style:
        return json.dumps(value)
    return str(yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9)).strip()


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _last_line(node: yaml.Node) -> int:
    """The last line of a value, from 0; a block's own end is where the next one begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return max(map(_last_line, last)) if isinstance(last, tuple) else _last_line(last)
    mark = node.end_mark
    return mark.line - 1 if mark.column == 0 and mark.line > node.start_mark.line else mark.line


def _require_only_added(file: str, old: str, new: str, additions: Iterable[Addition]) -> None:
    """Raise AssertionError if the new text has another value than the old one with the additions."""
    expected = {(document.index, document.at): document.value for document in parse(file, old)}
    for addition in additions:
        target: Any = expected[addition.document.index, addition.document.at]
        for key in addition.keys[:-1]:
            target = target.setdefault(key, {}) if isinstance(target, dict) else target[key]
        key = addition.keys[-1]
        if isinstance(addition.value, list) and key in target:
            target[key] = [*target[key], *addition.value]
        else:
            target[key] = addition.value
    found = {(document.index, document.at): document.value for document in parse(file, new)}
    if found != expected:
        raise AssertionError(f"{file}: an addition would change more than it adds")
