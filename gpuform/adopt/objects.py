"""What a cluster has, as adoption reads it: from the API server with ``get`` and ``list``, or from a dump.

Neither Secrets nor the values of environment variables are read: a dump may hold them, and no object of
another kind than those below is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.adopt.configs import named
from gpuform.checkout.errors import InputError
from gpuform.kubernetes.cluster import Reader
from gpuform.kubernetes.kinds import (
    CLUSTER_POLICY,
    CLUSTER_QUEUE,
    CONFIG_MAP,
    DAEMON_SET,
    NAMESPACE,
    NODE,
    NODE_POOL,
    PROMETHEUS,
    RESOURCE_QUOTA,
    RESOURCE_SLICE,
    Kind,
)
from gpuform.kubernetes.kubeconfig_errors import Forbidden
from gpuform.manifests import documents

Json = Mapping[str, Any]
_KUBECONFIG_BYTES = 2**20
KINDS = (
    *(NODE, NAMESPACE, RESOURCE_QUOTA, DAEMON_SET),
    *(CLUSTER_POLICY, NODE_POOL, CLUSTER_QUEUE, RESOURCE_SLICE, PROMETHEUS),
)
"""All objects of these kinds are listed; of ConfigMaps only those that an operand's configuration names."""


@dataclass(frozen=True)
class Found:
    """A cluster's objects by kind; ``denied``: kinds that the credentials may not list."""

    objects: Mapping[Kind, Sequence[Json]]
    config_map: Callable[[str, str], Json | None]
    """Finds a ConfigMap by namespace and name; None if there is none, or if it may not be read."""
    denied: tuple[Kind, ...] = ()

    def all(self, kind: Kind) -> Sequence[Json]:
        return self.objects.get(kind, ())


@contextmanager
def well_formed(source: str) -> Iterator[None]:
    """Raises InputError for ``source`` if an object in it lacks what an API server always returns."""
    try:
        yield
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fact = f"has an object that no API server returns ({type(error).__name__}: {error})"
        raise InputError(source, fact, "write it again with kubectl -o json") from None


def read_cluster(kubeconfig: Path, context: str | None = None, kinds: Sequence[Kind] = KINDS) -> Found:
    """Read a live cluster; OSError if it does not answer, or does not let nodes be listed."""
    objects: dict[Kind, Sequence[Json]] = {}
    config_maps: dict[tuple[str, str], Json | None] = {}
    denied: list[Kind] = []
    with Reader(kubeconfig, context) as cluster:
        for kind in kinds:
            try:
                objects[kind] = list(_valid(cluster.list_objects(kind)))
            except Forbidden:
                if kind == NODE:
                    raise
                denied.append(kind)
        for key in named(objects.get(CLUSTER_POLICY, ()), objects.get(DAEMON_SET, ())):
            try:
                config_maps[key] = cluster.find(CONFIG_MAP, *key)
            except Forbidden:
                denied.append(CONFIG_MAP)
    return Found(
        objects, lambda namespace, name: config_maps.get((namespace, name)), tuple(dict.fromkeys(denied))
    )


def read_dump(path: Path, kinds: Sequence[Kind] = KINDS) -> Found:
    """Read files or a folder with the output of ``kubectl get -o json|yaml``; InputError without nodes."""
    if not path.exists():
        raise InputError(str(path), "does not exist", "name output of `kubectl get -o json`")
    wanted = {(_group(kind.group), kind.name): kind for kind in (*kinds, CONFIG_MAP)}
    objects: dict[Kind, dict[tuple[str, str], Json]] = {kind: {} for kind in wanted.values()}
    for file, text in documents.read_files([path]).items():
        for item in _valid(_items(file, text)):
            api, name = str(item.get("apiVersion") or ""), str(item.get("kind") or "")
            if kind := wanted.get((api.rpartition("/")[0], name)):
                objects[kind][_key(item)] = item
    if not objects[NODE]:
        remedy = "write one with `kubectl get nodes,pods,... -A -o json`: docs/howto/existing-cluster.md"
        raise InputError(str(path), "holds no Node", remedy)
    config_maps = objects.pop(CONFIG_MAP)
    listed = {kind: tuple(items.values()) for kind, items in objects.items()}
    return Found(listed, lambda namespace, name: config_maps.get((namespace, name)))


def is_kubeconfig(path: Path) -> bool:
    """Whether a file is a kubeconfig rather than a dump: its kind stands alone, near the top or the end."""
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8", errors="replace")[:_KUBECONFIG_BYTES]
    return re.search(r'^\s*"?kind"?:\s*"?Config"?,?\s*$', text, re.MULTILINE) is not None


def _group(path: str) -> str:
    """``apps`` of ``/apis/apps/v1``; empty for the core group."""
    parts = path.split("/")
    return parts[2] if parts[1] == "apis" else ""


def _items(file: str, text: str) -> Iterator[Any]:
    """Objects of a file; JSON, several in one file too, is read as such: a large cluster's has 50 MB."""
    if not text.lstrip().startswith("{"):
        yield from (document.value for document in documents.parse(file, text))
        return
    decoder, at = json.JSONDecoder(), 0
    try:
        while at < len(text) and (start := len(text) - len(text[at:].lstrip())) < len(text):
            value, at = decoder.raw_decode(text, start)
            yield from _entries(value)
    except (ValueError, RecursionError) as error:
        raise InputError(file, f"is not JSON ({error})", "write it again with kubectl -o json") from None


def _entries(value: Any) -> Iterable[Any]:
    """The items of a List, which name no kind of their own in lists of one kind (``NodeList``)."""
    if not isinstance(value, Mapping) or not isinstance(value.get("items"), list):
        return (value,)
    kind = str(value.get("kind") or "").removesuffix("List")
    default = {"apiVersion": value.get("apiVersion"), "kind": kind} if kind else {}
    return [{**default, **item} if isinstance(item, Mapping) else item for item in value["items"]]


def _valid(items: Iterable[Any]) -> Iterator[Json]:
    """Those with a name; a dump may be cut, or written by hand."""
    for item in items:
        metadata = item.get("metadata") if isinstance(item, Mapping) else None
        if isinstance(metadata, Mapping) and isinstance(metadata.get("name"), str):
            yield item


def _key(item: Json) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])
