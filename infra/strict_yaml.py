"""YAML written by people: every error is an InputError with line and column; size and time are bounded.

``Loader`` and ``Dumper`` are libyaml's if PyYAML was built with it: eight times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from infra.model.base.errors import InputError, Place

try:
    from yaml import CSafeDumper as Dumper
    from yaml import CSafeLoader as Loader
except ImportError:
    from yaml import SafeDumper as Dumper  # type: ignore[assignment]
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

__all__ = [
    "MAX_BYTES",
    "Dumper",
    "Loader",
    "documents",
    "load_all",
    "parse",
    "positions",
    "read",
    "read_text",
    "short_path",
]

MAX_BYTES = 2**20
"""Bytes of a file: its settings become ConfigMaps, and Kubernetes takes no ConfigMap above 1 MiB."""
_MAX_DEPTH = 100
"""Levels of lists and mappings; an environment has about ten, the schema of a CRD with templates of another
CRD's objects in it more than 50 (Kubeflow's OptimizationJob). Python's own limit is about 1000 calls."""
_MAX_NODES = 50_000
"""Values and keys once aliases are expanded: 5000 hosts have 35,000. The engine's parser (gopkg.in/yaml.v3,
decode.go) limits aliases by a share instead, from 400,000 values on."""
_MAX_MANIFEST_NODES = 4_000_000
"""The same for a file of manifests, by its bytes at most 64 MiB (`documents`)."""
_INTEGERS = range(-(2**63), 2**64)
"""Integers that the engine's parser reads exactly; it makes floats of others."""
_MAX_SCALAR = 100
"""Characters of a number, a date, a truth value: longer ones take PyYAML quadratic time."""
_MAX_EXPLAINED = 2**17
"""Characters up to which PyYAML's own parser explains an error: it names what it found, but is slow."""
_TEXTS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:binary")
_MERGE = "tag:yaml.org,2002:merge"
_NAME_A_FILE = "name an existing stack file"


def load_all(text: str) -> Iterator[Any]:
    """The documents of a text, lazily. Raises yaml.YAMLError if it is not YAML."""
    return iter(yaml.load_all(text, Loader=Loader))


def read(path: Path, remedy: str = _NAME_A_FILE) -> Any:
    """The content of a file; InputError if it cannot be read, is not UTF-8, is too long or not YAML."""
    return parse(read_text(path, remedy), str(short_path(path)))


def short_path(path: Path) -> Path:
    """A path as messages name it: from the working directory if it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def read_text(path: Path, remedy: str = _NAME_A_FILE, most: int = MAX_BYTES) -> str:
    """A file's text; InputError if it cannot be read, is not UTF-8, or is longer than ``most`` bytes."""
    source = str(short_path(path))
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)  # no more of a device or a pipe
        if len(content) > most:
            raise InputError(source, f"is longer than {most // 2**10} KiB", "make it shorter")
        return content.decode("utf-8")
    except OSError as error:
        raise InputError(source, error.strerror or "cannot be read", remedy) from None
    except UnicodeDecodeError:
        raise InputError(source, "is not UTF-8 text", "save it as UTF-8") from None


def parse(text: str, source: str) -> Any:
    """Parsed YAML; InputError names the line and column of what is wrong, counted from 1."""
    with _explained(text, source):
        _check_text(text, _MAX_NODES)
        return yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)


def documents(text: str, source: str) -> list[tuple[yaml.Node, Any]]:
    """Each document's nodes, with their positions, and its value; those without content are left out.

    Raises InputError as `parse` does.
    """
    with _explained(text, source):
        _check_text(text, _MAX_MANIFEST_NODES)
        loader = _Loader(text)
        try:
            found = []
            while loader.check_node():
                if (node := loader.get_node()) is not None:
                    found.append((node, loader.construct_document(node)))
            return found
        finally:
            loader.dispose()


def _check_text(text: str, most: int) -> None:
    try:
        _check(yaml.parse(text, Loader), most)
    except yaml.MarkedYAMLError:
        if len(text) <= _MAX_EXPLAINED:
            with suppress(ValueError, OverflowError):  # of an escape sequence that is no character
                _check(yaml.parse(text, yaml.SafeLoader), most)
        raise


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "is not YAML"
    if problem.startswith("expected <block end>, but found '<block"):
        return "the indentation matches no line above"
    return f"{error.context}, {problem}" if problem.startswith("but ") else problem


@contextmanager
def _explained(text: str, source: str) -> Iterator[None]:
    """InputError for what is not YAML, with the place."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(source, mark.line + 1, mark.column + 1) if mark else Place(source, 1, 1)
        raise InputError("", _problem(error), "correct the YAML there", place) from None
    except yaml.reader.ReaderError as error:
        before = (
            text.encode()[: error.position].decode(errors="ignore")
            if error.encoding
            else text[: error.position]
        )
        place = Place(source, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise InputError("", "holds a character that YAML does not allow", "remove it", place) from None
    except UnicodeEncodeError:
        raise InputError(source, "is not Unicode text", "save it as UTF-8") from None


def positions(text: str) -> Callable[[Iterable[str | int]], tuple[int, int]]:
    """Line and column, from 1, of keys and indexes in a valid text; of their owner if they are not there."""
    root: Any = yaml.compose(text, Loader)

    def find(parts: Iterable[str | int]) -> tuple[int, int]:
        node, mark = root, root.start_mark
        for part in parts:
            if isinstance(node, yaml.SequenceNode):
                node = node.value[part]
                mark = node.start_mark
            elif pair := next((pair for pair in node.value if pair[0].value == str(part)), None):
                mark, node = pair[0].start_mark, pair[1]
            else:  # merged by <<
                break
        return mark.line + 1, mark.column + 1

    return find


def _check(events: Iterable[yaml.Event], most: int) -> None:
    """Refuse what would take unbounded depth, memory or time to construct; nothing is constructed here."""
    sizes: dict[str, int] = {}
    anchors: list[str | None] = []
    starts: list[int] = []
    total = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in anchors:
                raise _error_at(event, f"the value of anchor {event.anchor!r} contains itself")
            if event.anchor not in sizes:
                raise _error_at(event, f"found undefined alias {event.anchor!r}")
            total += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            anchors.append(event.anchor)
            starts.append(total)
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, start = anchors.pop(), starts.pop()
            if anchor is not None:
                sizes[anchor] = total - start
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if len(anchors) > _MAX_DEPTH:
            raise _error_at(event, f"lists and mappings are nested more than {_MAX_DEPTH} deep")
        if total > most:
            raise _error_at(event, f"holds more than {most} values, aliases included")


def _error_at(event: yaml.Event, problem: str) -> yaml.MarkedYAMLError:
    mark: Any = event.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _Loader(Loader):
    """SafeLoader that rejects duplicate keys, of which PyYAML keeps the last, and scalars without a value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():  # else the tag is wrong
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is given twice", problem_mark=key_node.start_mark
                )
            if isinstance(key, str):
                keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """PyYAML resolves a scalar by a pattern: ``2026-02-30`` is a date to it, ``!!int x`` a number."""
        scalar = isinstance(node, yaml.ScalarNode) and node.tag not in _TEXTS
        try:
            if scalar and len(node.value) > _MAX_SCALAR:
                raise ValueError
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value not in _INTEGERS:
                raise ValueError
        except (ValueError, ArithmeticError, LookupError, AttributeError):
            kind = node.tag.rpartition(":")[2]
            quoted = repr(node.value[:40]) if isinstance(node, yaml.ScalarNode) else "this"
            problem = f"{quoted} has no value as {kind}, which it looks like; put it in quotes if it is text"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None
        return value
