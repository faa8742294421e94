"""Between a program's inputs, the object that is sent, and the state that the engine keeps."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.handler import Properties
from gpuform.plugins.kubernetes.difference import declared, like
from gpuform.plugins.properties import UNKNOWN, Secret, conceal, has_unknown, reveal

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT = "pulumi.com/timeoutSeconds"
PATCH_FORCE = "pulumi.com/patchForce"
PATCH_MANAGER = "pulumi.com/patchFieldManager"
PROPAGATION = "pulumi.com/deletionPropagationPolicy"
_OWN = ("__fieldManager", "__initialApiVersion", "__inputs")


def is_secret(manifest: Mapping[str, Any]) -> bool:
    """Whether this is a core Secret, whose content is secret whatever the program says."""
    return manifest.get("kind") == "Secret" and manifest.get("apiVersion") in ("v1", "core/v1")


def annotation(manifest: Mapping[str, Any], name: str) -> str:
    """One annotation, empty where it is not set or not known yet."""
    metadata = reveal(manifest.get("metadata"))
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    value = annotations.get(name) if isinstance(annotations, Mapping) else None
    return value if isinstance(value, str) else ""


def flag(manifest: Mapping[str, Any], name: str) -> bool:
    """Whether an annotation is ``true``."""
    return annotation(manifest, name).lower() == "true"


def normal(inputs: Properties, token: str) -> Properties:
    """Inputs as the server would keep them: apiVersion and kind set, a Secret's ``stringData`` in ``data``.

    The content of a Secret is marked as secret even where the program forgot to.
    """
    api_version, kind = of_token(token)
    result: Properties = {"apiVersion": api_version, "kind": kind} | inputs
    if isinstance(result["apiVersion"], str):
        result["apiVersion"] = result["apiVersion"].removeprefix("core/")
    if is_secret(result):
        _encode(result)
        for key in ("data", "stringData"):
            if result.get(key) is not None and not isinstance(result[key], Secret):
                result[key] = Secret(reveal(result[key]))
    return result


def _encode(result: Properties) -> None:
    text, data = reveal(result.get("stringData")), reveal(result.get("data"))
    if not isinstance(text, Mapping) or has_unknown(text) or data is UNKNOWN:
        return
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
    result["data"] = Secret({**(data or {}), **encoded})
    del result["stringData"]


def of_token(token: str) -> tuple[str, str]:
    """(apiVersion, kind) that a type token stands for: ``kubernetes:core/v1:Pod`` is (v1, Pod).

    The token of a patch resource names the kind that it patches.
    """
    _, group_version, kind = token.split(":", 2)
    return group_version.removeprefix("core/"), kind.removesuffix("Patch")


def payload(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The object to send: secrets in the clear, nothing that is null."""
    plain: dict[str, Any] = _without_none(reveal(inputs))
    return plain


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def outputs(live: Mapping[str, Any], inputs: Properties, manager: str, initial: str = "") -> Properties:
    """The state of an object: what is live, and what the next operation must know.

    What the program marked secret is secret here as well, as is the content of every Secret. Of the managed
    fields only those of ``manager`` are kept: others' entries carry a time with every heartbeat, so that each
    refresh would show a change, and they are the largest part of a Node.
    """
    metadata = dict(live["metadata"])
    if "managedFields" in metadata:
        metadata["managedFields"] = [f for f in metadata["managedFields"] if f.get("manager") == manager]
    state: Properties = conceal({**live, "metadata": metadata}, inputs)
    if is_secret(live):
        for key in ("data", "stringData"):
            if key in state:
                state[key] = Secret(reveal(state[key]))
        metadata = reveal(state["metadata"])
        annotations = metadata.get("annotations") or {}
        if LAST_APPLIED in annotations:
            annotations = annotations | {LAST_APPLIED: Secret(annotations[LAST_APPLIED])}
            state["metadata"] = metadata | {"annotations": annotations}
    state["__fieldManager"] = manager
    state["__initialApiVersion"] = initial or live["apiVersion"]
    state["__inputs"] = inputs
    return state


def live_part(olds: Properties) -> Properties:
    """The object within a state that `outputs` made."""
    return {key: value for key, value in olds.items() if key not in _OWN}


def refreshed(live: Mapping[str, Any], inputs: Properties) -> Properties:
    """The inputs that would make ``live``: the fields that ``inputs`` speaks of, or, on import, all of them.

    An imported object that kubectl applied is taken as it was applied.
    """
    if inputs:
        return like(declared(live), inputs)  # type: ignore[no-any-return]
    applied = annotation(live, LAST_APPLIED)
    try:
        found = json.loads(applied) if applied else declared(live)
    except ValueError:
        found = declared(live)
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        found = declared(live)
    (found["metadata"].get("annotations") or {}).pop(LAST_APPLIED, None)
    if not found["metadata"].get("annotations"):
        found["metadata"].pop("annotations", None)
    result: Properties = found
    if is_secret(result):
        for key in ("data", "stringData"):
            if key in result:
                result[key] = Secret(result[key])
    return result
