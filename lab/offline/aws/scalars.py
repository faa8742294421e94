"""Validates single values against botocore's model: enums, patterns, upper bounds."""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from gpuform.provider.properties import has_unknown

_MAX_SHOWN = 8
_CIDR_INPUTS = ("cidrblock", "cidripv4", "publicaccesscidrs", "cidrblocks", "destinationcidrblock")


def check_scalar(value: Any, shape: Shape, path: str) -> tuple[Any, str]:
    """The value as the API takes it, and its error or an empty text; botocore checks the type."""
    if shape.type_name == "boolean" and value in ("true", "false"):
        return value == "true", ""  # the SDK has text where "unset" is a third state
    if shape.type_name == "string" and isinstance(value, str):
        return value, _check_text(value, shape) or _check_format(value, path)
    maximum, is_number = shape.metadata.get("max"), isinstance(value, int | float)
    if is_number and not isinstance(value, bool) and maximum is not None and value > maximum:
        return value, f"{value} is too large; the maximum is {maximum}"
    return value, ""


def check_document(value: Any) -> tuple[Any, str]:
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


def placeholder(shape: Shape) -> Any:
    """A value of the right shape in place of an unknown one."""
    if isinstance(shape, StructureShape):
        return {name: placeholder(shape.members[name]) for name in shape.required_members}
    if isinstance(shape, ListShape):
        return [placeholder(shape.member)] * max(1, shape.metadata.get("min", 1))
    if isinstance(shape, MapShape):
        return {}
    if shape.type_name == "boolean":
        return True
    if shape.type_name == "string":
        return "x" * max(1, shape.metadata.get("min", 1))
    return max(1, shape.metadata.get("min", 1))


def _check_text(value: str, shape: Any) -> str:
    if shape.enum and value not in shape.enum:
        similar = difflib.get_close_matches(value, shape.enum, _MAX_SHOWN, cutoff=0.5) or shape.enum
        shown = shape.enum if len(shape.enum) <= _MAX_SHOWN else similar[:_MAX_SHOWN]
        return f"{value!r} is not known; {'' if shown is shape.enum else 'similar: '}{', '.join(shown)}"
    maximum = shape.metadata.get("max")
    if maximum is not None and len(value) > maximum:
        return f"{len(value)} characters are too many; the maximum is {maximum}"
    pattern = shape.metadata.get("pattern")
    if not pattern:
        return ""
    try:
        fits = re.fullmatch(pattern, value, re.DOTALL)
    except re.error:  # a Unicode class that Python does not support
        return ""
    return "" if fits else f"{value!r} does not match {pattern}"


def _check_format(value: str, path: str) -> str:
    """Checks IPv4 blocks and ARNs, which are plain text in the model but validated by AWS."""
    last = re.sub(r"\[\d+\]", "", path).rsplit(".", 1)[-1].lower()
    if last in _CIDR_INPUTS:
        try:
            ipaddress.IPv4Network(value)
        except ValueError as error:
            return f"is not an IPv4 block: {error}"
    if last.endswith("arn") and not value.startswith("arn:"):
        return f"{value!r} is not an ARN"
    return ""
