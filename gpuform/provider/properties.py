"""Pulumi property values as plain Python: what crosses the wire between the engine and a plugin.

A property map is a protobuf ``Struct``. Here it becomes ``dict``, ``list``, ``str``, ``bool``,
``int``/``float`` and ``None`` plus two marks that the wire encodes in its own way:

* `Secret` wraps a value that the engine keeps encrypted;
* `UNKNOWN` stands for a value that a preview does not know yet.

``Struct`` numbers are doubles; whole ones become ``int``, because Kubernetes refuses ``3.0`` for ``3``.
Assets, archives and resource references pass through as the dicts that they are on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from google.protobuf import struct_pb2

# The wire format's constants: pulumi's sdk/python/lib/pulumi/runtime/rpc.py spells out the same values.
SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - names a kind of value, no password
OUTPUT_SIGNATURE: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN_STRING: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_UNKNOWN_STRINGS: Final = frozenset(
    {
        UNKNOWN_STRING,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # bool
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)


class Unknown(Enum):
    """The type of `UNKNOWN`, which stays the same in a copy."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN


@dataclass(frozen=True, repr=False)
class Secret:
    """A value that must not appear in state, logs or messages in the clear."""

    value: Any

    def __repr__(self) -> str:
        return "Secret(...)"


def from_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return ``struct`` as plain Python, with `Secret` and `UNKNOWN` where the wire says so."""
    return {key: from_value(value) for key, value in struct.fields.items()}


def from_value(value: struct_pb2.Value) -> Any:
    """Return one protobuf value as plain Python; a value of no kind is ``None``."""
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        text = value.string_value
        return UNKNOWN if text in _UNKNOWN_STRINGS else text
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [from_value(item) for item in value.list_value.values]
    if kind == "struct_value":
        return _from_object(value.struct_value)
    return None


def _from_object(struct: struct_pb2.Struct) -> Any:
    fields = struct.fields
    signature = fields[SIGNATURE].string_value if SIGNATURE in fields else ""
    if signature == SECRET_SIGNATURE:
        return Secret(from_value(fields["value"]))
    if signature == OUTPUT_SIGNATURE:
        inner = from_value(fields["value"]) if "value" in fields else UNKNOWN
        secret = "secret" in fields and fields["secret"].bool_value
        return Secret(inner) if secret else inner
    return from_struct(struct)


def to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return ``values`` as a ``Struct``; a nested `Secret` or `UNKNOWN` is encoded."""
    struct = struct_pb2.Struct()
    for key, value in values.items():
        _set(struct.fields[key], value)
    return struct


def _set(target: struct_pb2.Value, value: Any) -> None:
    if value is None:
        target.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    elif isinstance(value, Mapping):
        target.struct_value.SetInParent()  # an empty map must stay a map
        for key, item in value.items():
            _set(target.struct_value.fields[key], item)
    elif isinstance(value, list | tuple):
        target.list_value.SetInParent()
        for item in value:
            _set(target.list_value.values.add(), item)
    elif isinstance(value, Secret):
        target.struct_value.fields[SIGNATURE].string_value = SECRET_SIGNATURE
        _set(target.struct_value.fields["value"], value.value)
    elif value is UNKNOWN:
        target.string_value = UNKNOWN_STRING
    else:
        raise TypeError(f"not a property value: {type(value).__name__}")


def has_unknown(value: Any) -> bool:
    """Whether ``value`` is, or holds, `UNKNOWN`."""
    if isinstance(value, Secret):
        return has_unknown(value.value)
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(has_unknown(item) for item in value)
    return value is UNKNOWN


def reveal(value: Any) -> Any:
    """A copy of ``value`` with every `Secret` replaced by what it holds; `UNKNOWN` stays."""
    if isinstance(value, Secret):
        return reveal(value.value)
    if isinstance(value, Mapping):
        return {key: reveal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [reveal(item) for item in value]
    return value
