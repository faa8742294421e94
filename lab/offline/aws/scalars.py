"""Validates single values against botocore's model: enums, patterns, upper bounds."""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from gpuform.provider.properties import has_unknown

_SHOWN = 8
_BLOCKS = ("cidrblock", "cidripv4", "publicaccesscidrs", "cidrblocks", "destinationcidrblock")


def checked(value: Any, shape: Shape, path: str) -> tuple[Any, str]:
    """The value as the API takes it, and its error or an empty text; botocore checks the type."""
    if shape.type_name == "boolean" and value in ("true", "false"):
        return value == "true", ""  # the SDK has text where "unset" is a third state
    if shape.type_name == "string" and isinstance(value, str):
        return value, _text(value, shape) or _format(value, path)
    top = shape.metadata.get("max")
    if isinstance(value, int | float) and not isinstance(value, bool) and top is not None and value > top:
        return value, f"{value} is too large; the maximum is {top}"
    return value, ""


def document(value: Any) -> tuple[Any, str]:
    """A document as JSON text, and its error or an empty text; the SDK also takes an object."""
    if has_unknown(value):
        return "{}", ""
    if not isinstance(value, str):
        return json.dumps(value), ""
    try:
        parsed = json.loads(value)
    except ValueError as error:
        return value, f"is not JSON: {error}"
    return value, "" if isinstance(parsed, dict) else "is not a JSON object"


def stand_in(shape: Shape) -> Any:
    """A value of the right shape in place of an unknown one."""
    if isinstance(shape, StructureShape):
        return {name: stand_in(shape.members[name]) for name in shape.required_members}
    if isinstance(shape, ListShape):
        return [stand_in(shape.member)] * max(1, shape.metadata.get("min", 1))
    if isinstance(shape, MapShape):
        return {}
    if shape.type_name == "boolean":
        return True
    if shape.type_name == "string":
        return "x" * max(1, shape.metadata.get("min", 1))
    return max(1, shape.metadata.get("min", 1))


def _text(value: str, shape: Any) -> str:
    if shape.enum and value not in shape.enum:
        near = difflib.get_close_matches(value, shape.enum, _SHOWN, cutoff=0.5) or shape.enum
        few = shape.enum if len(shape.enum) <= _SHOWN else near[:_SHOWN]
        return f"{value!r} is not known; {'' if few is shape.enum else 'similar: '}{', '.join(few)}"
    top = shape.metadata.get("max")
    if top is not None and len(value) > top:
        return f"{len(value)} characters are too many; the maximum is {top}"
    pattern = shape.metadata.get("pattern")
    if not pattern:
        return ""
    try:
        fits = re.fullmatch(pattern, value, re.DOTALL)
    except re.error:  # a Unicode class that Python does not support
        return ""
    return "" if fits else f"{value!r} does not match {pattern}"


def _format(value: str, path: str) -> str:
    """Checks IPv4 blocks and ARNs, which are plain text in the model but validated by AWS."""
    last = re.sub(r"\[\d+\]", "", path).rsplit(".", 1)[-1].lower()
    if last in _BLOCKS:
        try:
            ipaddress.IPv4Network(value)
        except ValueError as error:
            return f"is not an IPv4 block: {error}"
    if last.endswith("arn") and not value.startswith("arn:"):
        return f"{value!r} is not an ARN"
    return ""
