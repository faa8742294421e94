"""A CUDA compute capability, as it is written in an environment."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from infra.model.base import matching


def _as_text(value: Any) -> Any:
    """YAML reads 8.0 as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"{value}.0" if isinstance(value, int) else str(value)


Compute = Annotated[
    str,
    BeforeValidator(_as_text, json_schema_input_type=str | float),
    matching(r"[1-9][0-9]?\.[0-9]", "a compute capability", "write it as NVIDIA does, for example 8.0"),
]
"""A CUDA compute capability."""
