"""What a preflight says: of one finding, and as refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.checkout.errors import InputError
from gpuform.clouds import cloud_of
from gpuform.stack.preflight import require_possible
from gpuform.stack.preflight.check import Finding, Result
from infra.model.environment import Environment


def expect(found: Finding | Result, verdict: str, fact: str, fix: str = "") -> None:
    """``fact`` and ``fix`` are parts of what is said."""
    assert (found.verdict, fact in found.fact, fix in found.fix) == (verdict, True, True), found


def refused(env: Environment, state: Mapping[str, Any] | None, live: bool = False) -> list[str]:
    try:
        require_possible(cloud_of(env).preflight.refusals, env, state, live)
    except InputError as error:
        return [str(one) for one in error.errors]
    return []
