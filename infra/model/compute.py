"""A CUDA compute capability, as it is written in an environment."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from infra.model.errors import InputError


def _as_text(value: Any) -> Any:
    """YAML reads 8.0 as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"{value}.0" if isinstance(value, int) else str(value)


def _version(value: str) -> str:
    major, dot, minor = value.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise InputError(
            "", f"{value!r} is not a compute capability", "write it as NVIDIA does, for example 8.0"
        )
    return value


Compute = Annotated[
    str, BeforeValidator(_as_text, json_schema_input_type=str | float), AfterValidator(_version)
]
"""A CUDA compute capability."""
