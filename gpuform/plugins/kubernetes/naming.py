"""Names: what an object is called where the program does not say, and how its id is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.handler import Call, PluginError, Properties
from gpuform.plugins.properties import UNKNOWN, Secret, reveal

AUTONAMED = "pulumi.com/autonamed"


def field_manager(urn: str) -> str:
    """The name under which a resource's fields are applied.

    It follows from the URN alone, so that a create that was killed before the engine noted it is recognised.
    """
    return f"pulumi-kubernetes-{hashlib.sha256(urn.encode()).hexdigest()[:8]}"


def object_id(manifest: Mapping[str, Any]) -> str:
    """``namespace/name``, or ``name`` for an object of the whole cluster."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def split_id(id: str) -> tuple[str | None, str]:
    """(namespace, name) of an id; `PluginError` for one that has neither form."""
    parts = id.split("/")
    if not all(parts) or len(parts) > 2:
        raise PluginError(f"id {id!r} is neither NAME nor NAMESPACE/NAME; give one of these")
    return (parts[0], parts[1]) if len(parts) == 2 else (None, parts[0])


def autonamed(manifest: Mapping[str, Any]) -> bool:
    """Whether the name was made up here, so that a replacement may stand beside the old object."""
    annotations = _metadata(manifest).get("annotations")
    annotations = reveal(annotations)
    return isinstance(annotations, Mapping) and annotations.get(AUTONAMED) == "true"


def same_place(old: Mapping[str, Any], new: Mapping[str, Any], default: str) -> bool:
    """Whether both are one object to the server: the same name and namespace, ``default`` where none is said.

    A name that is not known yet, or that the server makes up, is no name in common.
    """
    name = _metadata(new).get("name")
    if name in (None, UNKNOWN) or name != _metadata(old).get("name"):
        return False
    return bool(namespace_of(old, default) == namespace_of(new, default))


def namespace_of(manifest: Mapping[str, Any], default: str) -> Any:
    """The namespace that a manifest says, or ``default``."""
    return _metadata(manifest).get("namespace") or default


def named(call: Call, olds: Properties, news: Properties) -> Properties:
    """``news`` with a name: its own, else the one it had, else ``<resource>-<8 hex>``.

    The eight digits follow from the engine's random seed. Raises `PluginError` when the stack's configuration
    forbids automatic names.
    """
    metadata = reveal(news.get("metadata"))
    if metadata is UNKNOWN or (metadata and (metadata.get("name") or metadata.get("generateName"))):
        return news
    annotations = (metadata or {}).get("annotations")
    if annotations is UNKNOWN:
        return news
    name = str(_metadata(olds)["name"]) if autonamed(olds) else _made_up(call)
    return with_metadata(news, annotations={**(annotations or {}), AUTONAMED: "true"}, name=name)


def with_metadata(inputs: Properties, **fields: Any) -> Properties:
    """``inputs`` with more metadata; metadata that is secret as a whole stays so."""
    metadata = inputs.get("metadata")
    if isinstance(metadata, Secret):
        return inputs | {"metadata": Secret({**reveal(metadata), **fields})}
    return inputs | {"metadata": {**(metadata or {}), **fields}}


def _made_up(call: Call) -> str:
    if call.autonaming:
        mode, proposed = call.autonaming
        if mode == "disable":
            raise PluginError(f"{call.name}: automatic names are switched off; set metadata.name")
        if proposed:
            return proposed
    digest = hashlib.sha256(call.random_seed + call.urn.encode()).hexdigest()[:8]
    return f"{call.name}-{digest}"


def _metadata(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = reveal(manifest.get("metadata"))
    return metadata if isinstance(metadata, Mapping) else {}
