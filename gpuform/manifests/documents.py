"""Kubernetes manifests as people and tools write them: files, documents, and where each value stands."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.errors import InputError
from infra import strict_yaml

Keys = tuple[str | int, ...]
"""Keys and indexes that lead to a value of a document."""
MAX_BYTES = 2**26
"""Bytes of one file: the CRDs of kube-prometheus-stack have 4 MiB, a rendered cluster of a thousand
applications about 20."""
STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
_KIND = re.compile(r"""\bkind["']?\s*:""")


@dataclass(frozen=True, eq=False)
class Document:
    """One object of a file: its value, and the nodes that say where it is written.

    ``index`` counts the documents of the file from 0; ``at`` leads to the object in a ``List``.
    """

    file: str
    index: int
    root: yaml.Node
    value: Mapping[str, Any]
    at: Keys = ()

    @property
    def kind(self) -> str:
        return str(self.value.get("kind") or "")

    @property
    def metadata(self) -> Mapping[str, Any]:
        return mapping_at(self.value, ("metadata",))

    @property
    def name(self) -> str:
        return str(self.metadata.get("name") or self.metadata.get("generateName") or "")

    def namespace(self, default: str) -> str:
        return str(self.metadata.get("namespace") or default)

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}".rstrip()

    def place(self, keys: Keys) -> tuple[int, int]:
        """Line and column, from 1, of a value, or of the nearest value around it that is written."""
        mark = self.root.start_mark
        node: Any = self.root
        for key in (*self.at, *keys):
            found = child(node, key)
            if found is None:
                break
            mark, node = found
        return mark.line + 1, mark.column + 1


def child(node: yaml.Node, key: str | int) -> tuple[Any, yaml.Node] | None:
    """Where a key or an entry begins, and its value; None if the text has none there (such as by ``<<``)."""
    if isinstance(node, yaml.SequenceNode):
        if isinstance(key, int) and key < len(node.value):
            return node.value[key].start_mark, node.value[key]
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == str(key):
                return name.start_mark, value
    return None


def entries(value: Mapping[str, Any], key: str) -> Sequence[Any]:
    """The list under a key; empty if there is something else."""
    found = value.get(key)
    return found if isinstance(found, list) else ()


def mapping_at(value: Any, keys: Keys) -> Mapping[str, Any]:
    """The object at a place of a document; empty if there is none."""
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return {}
    return value if isinstance(value, Mapping) else {}


def mapping_in(text: Any) -> Mapping[str, Any]:
    """The mapping that a text holds as YAML, such as an entry of a ConfigMap; empty if it is none."""
    try:
        value = strict_yaml.parse(text, "") if isinstance(text, str) else {}
    except InputError:
        return {}
    return value if isinstance(value, Mapping) else {}


def read_files(paths: Iterable[Path]) -> dict[str, str]:
    """The text of each file; folders are read with all below, ``-`` is standard input.

    Below a folder hidden files and folders are left out, the :func:`charts`, and files without a ``kind``:
    they hold no object, and may be YAML that only another program reads. Raises InputError for what cannot be
    read, and for a folder without such files.
    """
    texts: dict[str, str] = {}
    for path in paths:
        if str(path) == STDIN:
            texts[STDIN] = sys.stdin.read()
            continue
        files = [path]
        if path.is_dir():
            left_out = charts([path])
            files = [file for file in _below(path) if not any(file.is_relative_to(one) for one in left_out)]
            if not files:
                raise InputError(str(path), f"has no file {' or '.join(_SUFFIXES)}", "name another folder")
        read = {str(one): strict_yaml.read_text(one, "name a manifest with -f", MAX_BYTES) for one in files}
        texts |= {name: text for name, text in read.items() if path.is_file() or _KIND.search(text)}
    return texts


def charts(paths: Iterable[Path]) -> list[Path]:
    """The folders of Helm charts with templates below these folders: their files are no manifests."""
    found: list[Path] = []
    for file in (file for path in paths if path.is_dir() for file in _below(path)):
        chart = file.parent
        if file.name == "Chart.yaml" and (chart / "templates").is_dir() and chart not in paths:
            found += [] if any(chart.is_relative_to(outer) for outer in found) else [chart]
    return found


def _below(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix in _SUFFIXES
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        and file.is_file()
    )


def parse(file: str, text: str) -> list[Document]:
    """The Kubernetes objects of a text, those of Lists one by one; InputError if it is not YAML."""
    found: list[Document] = []
    try:
        parsed = strict_yaml.documents(text, file)
    except InputError as error:
        if "{{" not in text:
            raise
        fact = "it has {{ }}, so it is a template and no YAML"
        remedy = "render it first, a chart by helm template CHART | gpuform check STACK -f -"
        raise InputError(error.path, fact, remedy, error.place) from None
    for index, (root, value) in enumerate(parsed):
        found += _objects(file, index, root, value, ())
    return found


def parse_each(texts: Mapping[str, str]) -> tuple[list[Document], InputError | None]:
    """The objects of all files that are YAML, in their order, and an error for all the others."""
    found: list[Document] = []
    errors: list[InputError] = []
    for name, text in texts.items():
        try:
            found += parse(name, text)
        except InputError as error:
            errors.append(error)
    if len(errors) > 1:
        first, *others = errors
        return found, InputError(first.path, first.fact, first.remedy, first.place, others)
    return found, errors[0] if errors else None


def parse_all(texts: Mapping[str, str]) -> list[Document]:
    """The objects of all files, in their order; InputError for every file that is not YAML."""
    found, error = parse_each(texts)
    if error:
        raise error
    return found


def _objects(file: str, index: int, root: yaml.Node, value: Any, at: Keys) -> Iterator[Document]:
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        return
    items = value.get("items")
    if value["kind"].endswith("List") and isinstance(items, list):
        for number, item in enumerate(items):
            yield from _objects(file, index, root, item, (*at, "items", number))
        return
    yield Document(file, index, root, value, at)


def shared_nodes(root: yaml.Node) -> set[int]:
    """Ids of the nodes that aliases use again: to change one is to change the others."""
    seen: Counter[int] = Counter()

    def visit(node: yaml.Node) -> None:
        seen[id(node)] += 1
        if seen[id(node)] == 1 and isinstance(node, yaml.CollectionNode):
            for entry in node.value:
                for part in entry if isinstance(entry, tuple) else (entry,):
                    visit(part)

    visit(root)
    return {key for key, count in seen.items() if count > 1}
