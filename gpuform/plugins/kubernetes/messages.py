"""The server's refusals in words that name the object, the field and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.handler import PluginError
from gpuform.plugins.kubernetes.client import ApiError
from gpuform.plugins.kubernetes.naming import object_id
from gpuform.plugins.properties import secret_strings

_CONFLICT = re.compile(r'conflict with "(?P<manager>[^"]*)"')
_SHORT = 200


def subject(manifest: Mapping[str, Any]) -> str:
    """``Kind namespace/name``, as every message begins; ``prefix*`` where the server makes up the name."""
    metadata = manifest["metadata"]
    if "name" not in metadata:
        manifest = {**manifest, "metadata": {**metadata, "name": f"{metadata.get('generateName', '')}*"}}
    return f"{manifest.get('kind')} {object_id(manifest)}"


def without_secrets(text: str, inputs: Any) -> str:
    """``text`` without any value that ``inputs`` marks secret."""
    for value in sorted({*secret_strings(inputs)}, key=len, reverse=True):
        if len(value) > 1:
            text = text.replace(value, "[secret]")
    return text


def is_field_conflict(error: ApiError) -> bool:
    """Whether another field manager owns what was to be applied."""
    return error.code == 409 and any(c.get("reason") == "FieldManagerConflict" for c in error.causes)


def of_official_provider(error: ApiError) -> bool:
    """Whether every field in conflict was written by a create of the official provider."""
    return is_field_conflict(error) and all(
        (match := _CONFLICT.search(str(cause.get("message")))) and match["manager"] == "pulumi-kubernetes"
        for cause in error.causes
    )


def is_stale(error: ApiError) -> bool:
    """Whether somebody else wrote at the same moment, so that trying again helps."""
    return error.code == 409 and error.reason == "Conflict" and not is_field_conflict(error)


def is_forbidden_change(error: ApiError) -> bool:
    """Whether the server accepts the object as such but not this change of it."""
    return error.code == 422


def refusal(error: ApiError, manifest: Mapping[str, Any], inputs: Any, urn: str = "") -> PluginError:
    """The error to show for ``error``, which the server gave to ``manifest``.

    ``urn`` is given where an existing object was to be changed: then the remedy is to replace it.
    """
    name = subject(manifest)
    if is_field_conflict(error):
        return PluginError(without_secrets(f"{name}: {_conflicts(error)}", inputs))
    text = "; ".join(_cause(cause) for cause in error.causes) or _shortened(error.message)
    if urn and is_forbidden_change(error):
        fields = [str(cause.get("field")) for cause in error.causes if cause.get("field")]
        first = fields[0] if fields else "metadata.name"
        text = (
            f"the server does not change this in place: {text}; undo the change, or replace the object: "
            f"replace_on_changes=[\"{first}\"] on the resource, or pulumi up --replace '{urn}'"
        )
    return PluginError(without_secrets(f"{name}: {text}", inputs))


def _conflicts(error: ApiError) -> str:
    found = []
    for cause in error.causes:
        match = _CONFLICT.search(str(cause.get("message")))
        manager = match["manager"] if match else "another manager"
        found.append(f'field {cause.get("field")} is managed by "{manager}"')
    return (
        "; ".join(found) + "; leave it out of the program, or take it over with the annotation "
        'pulumi.com/patchForce: "true"'
    )


def _cause(cause: Mapping[str, Any]) -> str:
    field = str(cause.get("field") or "")
    message = _shortened(str(cause.get("message") or cause.get("reason") or "refused"))
    return f"{field}: {message}" if field and field != "<nil>" else message


def _shortened(text: str) -> str:
    """``text`` without the dump of an object that ``Invalid value`` may carry; the verdict stands last."""
    text = " ".join(text.split())
    if len(text) <= _SHORT or not text.startswith("Invalid value"):
        return text if len(text) <= 5 * _SHORT else text[: 5 * _SHORT] + " ..."
    return text.rpartition(": ")[2]


def exists(manifest: Mapping[str, Any], token: str, name: str) -> PluginError:
    """The object is there already, and somebody else made it."""
    id = object_id(manifest)
    return PluginError(
        f"{subject(manifest)}: it already exists and is not this resource's; "
        f"import it with: pulumi import {token} {name} {id}; or give it another name"
    )


def no_kind(manifest: Mapping[str, Any]) -> PluginError:
    """The server does not know the kind."""
    return PluginError(
        f"{subject(manifest)}: the server knows no kind {manifest['kind']} in {manifest['apiVersion']}; "
        "install its CustomResourceDefinition first (dependsOn, where the same program makes it)"
    )
