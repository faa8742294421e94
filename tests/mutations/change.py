"""Random changes of stack files: of the environment, of the YAML, of the bytes."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.config import KEY
from infra.model.environment import Environment
from tests.mutations.values import TEXTS, VALUES, WORDS

_SCHEMA = Environment.model_json_schema()
_KEYS = [set(item["properties"]) for item in (_SCHEMA, *_SCHEMA["$defs"].values()) if "properties" in item]


@dataclass(frozen=True)
class Seed:
    """A valid stack file, and what the mutations need of it."""

    name: str
    text: str
    spans: tuple[tuple[int, int], ...]
    """Start and end of every node in the text."""
    environment: dict[str, Any]


def seeds(files: list[Path]) -> list[Seed]:
    result = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        root = yaml.compose(text, yaml.SafeLoader)
        spans = tuple((node.start_mark.index, node.end_mark.index) for node in _nodes(root))
        result.append(Seed(file.stem, text, spans, yaml.safe_load(text)["config"][KEY]))
    return result


def _nodes(node: yaml.Node) -> Iterator[yaml.Node]:
    yield node
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield from _nodes(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _nodes(item)


def mutated(seed: Seed, rng: random.Random) -> bytes:
    if rng.random() < 0.6:
        environment = copy.deepcopy(seed.environment)
        for _ in range(_times(rng)):
            rng.choice(_STRUCTURAL)(environment, rng)
        text = f"config:\n  {KEY}: {_flow(environment)}\n"
    else:
        text = seed.text
        for number in range(_times(rng)):
            text = _spliced(seed, rng) if number == 0 and rng.random() < 0.7 else _edited(text, rng)
    if rng.random() < 0.9:
        return text.encode("utf-8", "surrogatepass")
    return _recoded(text, rng)


def _times(rng: random.Random) -> int:
    return 1 + (rng.random() < 0.4) + (rng.random() < 0.2) + (rng.random() < 0.1)


def _flow(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, width=1e9, allow_unicode=True)
        .removesuffix("\n...\n")
        .strip()
    )


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of the environment with each of its keys or indices."""
    result: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        here = stack.pop()
        for key in here if isinstance(here, dict) else range(len(here)):
            result.append((here, key))
            if isinstance(here[key], dict | list):
                stack.append(here[key])
    return result


Change = Callable[[Any, random.Random], None]


def _pick(environment: Any, rng: random.Random) -> tuple[Any, Any]:
    return rng.choice(_places(environment) or [({"": None}, "")])


def _delete(environment: Any, rng: random.Random) -> None:
    here, key = _pick(environment, rng)
    del here[key]


def _replace(environment: Any, rng: random.Random) -> None:
    here, key = _pick(environment, rng)
    here[key] = copy.deepcopy(rng.choice(VALUES))


def _rename(environment: Any, rng: random.Random) -> None:
    here, key = _pick(environment, rng)
    if isinstance(here, dict):
        new = rng.choice(VALUES)
        here[rng.choice(sorted(rng.choice(_KEYS))) if isinstance(new, dict | list) else new] = here.pop(key)


def _swap(environment: Any, rng: random.Random) -> None:
    (here, key), (objects, other) = _pick(environment, rng), _pick(environment, rng)
    here[key], objects[other] = copy.deepcopy(objects[other]), copy.deepcopy(here[key])


def _duplicate(environment: Any, rng: random.Random) -> None:
    lists = [here[key] for here, key in _places(environment) if isinstance(here[key], list) and here[key]]
    if lists:
        here = rng.choice(lists)
        item = rng.choice(here)
        for number in range(rng.choice((1, 1, 2, 30, 300))):
            twin = copy.deepcopy(item)
            if isinstance(twin, dict) and isinstance(twin.get("name"), str):
                twin["name"] += f"-{number}"
            here.append(twin)


def _retype(environment: Any, rng: random.Random) -> None:
    here, key = _pick(environment, rng)
    value = here[key]
    here[key] = rng.choice(
        ([value], {"name": value}, str(value), {str(value)[:50]: value}, [value, value], repr(value))
    )


def _nest(environment: Any, rng: random.Random) -> None:
    here, key = _pick(environment, rng)
    for _ in range(rng.choice((1, 2, 20, 150))):
        here[key] = (
            {key if isinstance(key, str) else "kind": here[key]} if rng.random() < 0.5 else [here[key]]
        )


def _scale(environment: Any, rng: random.Random) -> None:
    """Multiply a number; most other changes make a file invalid before any number matters."""
    numbers = [(here, key) for here, key in _places(environment) if type(here[key]) in (int, float)]
    if numbers:
        here, key = rng.choice(numbers)
        factor = rng.choice((-1, 0, 2, 7, 100, 1000, 10**6, 10**9, 10**18, 10**200))
        here[key] = here[key] * factor + rng.choice((0, 1))


def _insert(environment: Any, rng: random.Random) -> None:
    """Add a key that the schema knows beside those there, with a value of the schema's or any other."""
    mappings = [environment, *(h[k] for h, k in _places(environment) if isinstance(h[k], dict))]
    here = rng.choice(mappings)
    here_keys = {str(key) for key in here}
    blocks = [
        item for item in (_SCHEMA, *_SCHEMA["$defs"].values()) if here_keys <= set(item.get("properties", ()))
    ]
    if blocks:
        block = rng.choice(blocks)["properties"]
        key = rng.choice(sorted(block))
        here[key] = _sample(block[key], rng, 6) if rng.random() < 0.8 else copy.deepcopy(rng.choice(VALUES))


def _sample(schema: dict[str, Any], rng: random.Random, depth: int) -> Any:
    """A value that the schema allows, as far as types, ranges and references go."""
    if "$ref" in schema:
        return _sample(_SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], rng, depth)
    for item in ("anyOf", "oneOf"):
        if item in schema:
            return _sample(rng.choice(schema[item]), rng, depth)
    for literal in ("const", "default"):
        if literal in schema and (literal == "const" or rng.random() < 0.3):
            return copy.deepcopy(schema[literal])
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        least = schema.get("minimum", 0)
        return rng.choice((least, least + 1, least + 7, schema.get("maximum", 10**6)))
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return (
            [_sample(schema.get("items", {}), rng, depth - 1) for _ in range(rng.choice((0, 1, 1, 2)))]
            if depth
            else []
        )
    if kind == "object" and "properties" in schema:
        needed = set(schema.get("required", ()))
        chosen = [key for key in schema["properties"] if key in needed or (depth and rng.random() < 0.2)]
        return {key: _sample(schema["properties"][key], rng, depth - 1) for key in chosen}
    if kind == "object":
        inner = schema.get("additionalProperties", {})
        return {rng.choice(WORDS): _sample(inner if isinstance(inner, dict) else {}, rng, depth - 1)}
    return None if kind == "null" else rng.choice(WORDS)


_STRUCTURAL: tuple[Change, ...] = (
    *(_delete, _replace, _replace, _replace, _rename, _swap, _duplicate, _retype, _nest),
    *(_scale, _scale, _insert, _insert, _insert),
)


def _spliced(seed: Seed, rng: random.Random) -> str:
    """The text with one node replaced, repeated, wrapped, or referred to by an alias."""
    start, end = rng.choice(seed.spans)
    text, node = seed.text, seed.text[start:end]
    kind = rng.randrange(6)
    if kind < 3:
        new = rng.choice(TEXTS)
    elif kind == 3:
        new = rng.choice(
            ("[{}]", "{{a: {}}}", "!!str {}", "!!int {}", "!!set {}", "? {}", "{}{}", "{},{}")
        ).replace("{}", node)
    elif kind == 4:
        other = rng.choice(seed.spans)
        first, last = sorted([(start, end), other])
        if first[1] > last[0]:
            return text[:start] + "&a " + text[start:]
        alias = rng.choice(("*a", "{<<: *a}"))
        return f"{text[: first[0]]}&a {text[first[0] : last[0]]}{alias} {text[last[1] :]}"
    else:
        other_start, other_end = rng.choice(seed.spans)
        new = text[other_start:other_end]
    return text[:start] + new + text[end:]


def _edited(text: str, rng: random.Random) -> str:
    """The text with a line or some characters changed."""
    lines = text.split("\n")
    row = rng.randrange(len(lines))
    at = rng.randrange(len(text) + 1)
    kind = rng.randrange(9)
    if kind == 0:
        return text[:at]
    if kind == 1:
        return (
            text[:at]
            + rng.choice("\x00\x07\x1b\x85\u2028\ufeff\ud800\t\r\n{}[]&*!|>'\"%@`#:-?,~٣é😀")
            + text[at:]
        )
    if kind == 2:
        return text[:at] + text[at + rng.choice((1, 1, 5, 40)) :]
    if kind == 3:
        lines[row] = " " * rng.randrange(1, 5) + lines[row]
    elif kind == 4:
        lines[row] = lines[row].removeprefix(" " * rng.randrange(1, 5))
    elif kind == 5:
        lines[row:row] = [lines[row]] * rng.choice((1, 1, 3, 1000))
    elif kind == 6:
        other = rng.randrange(len(lines))
        lines[row], lines[other] = lines[other], lines[row]
    elif kind == 7:
        lines[row] = lines[row].replace(
            rng.choice((":", ": ", ",", "-", "{", "}", '"')), rng.choice(("", ":", "\t", "[", "{")), 1
        )
    else:
        return text[:at] + rng.choice(TEXTS) + text[at:]
    return "\n".join(lines)


def _recoded(text: str, rng: random.Random) -> bytes:
    """The text in another encoding, with a byte order mark, or with some bytes changed."""
    kind = rng.randrange(6)
    if kind == 0:
        return b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")
    if kind < 4:
        codec = ("utf-16", "utf-16-be", "utf-32", "latin-1", "cp1252")[rng.randrange(5)]
        return (text + rng.choice(("", "# é\n", "# \x80"))).encode(codec, "replace")
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(rng.choice((1, 3, 30))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)
