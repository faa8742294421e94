"""Which part of a platform a stack applies itself: all of it, or what a GitOps controller cannot do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.checkout.errors import InputError
from gpuform.stack.preflight import last_only
from infra.model.base.guard_names import SCOPE
from infra.model.environment import Environment

_OWN = ("NodePools", "MigLayouts", "ElasticPools")
"""Components that are the engine's either way."""


def parse(text: str | None, env: Environment) -> tuple[str, ...]:
    """The parts that --only names, in their order; none without it. InputError for others."""
    if text is None:
        return ()
    named = [name.strip() for name in text.split(",")]
    if "nodes" not in named or not set(named) <= set(SCOPE):
        raise InputError("--only", f"{text!r} is not known", "write --only nodes,layouts, or --only nodes")
    if env.is_simulated:
        fact = f"{env.name} is on this machine, where `gpuform up` applies the platform"
        raise InputError("--only", fact, "leave it out")
    return tuple(name for name in SCOPE if name in named)


def require_same(stack: str, state: Mapping[str, Any] | None, only: Sequence[str]) -> None:
    """Raise InputError if an update with ``only`` would delete the platform, or create it a second time.

    ``state`` is None if it is elsewhere; then nothing is known yet.
    """
    resources = ((state or {}).get("deployment") or {}).get("resources") or ()
    before = last_only(resources)
    if before and not set(before) <= set(only):
        last = f"--only {','.join(before)}"
        fact = f"the last update was `{last}`: others apply the platform of {stack}"
        remedy = f"give {last}; for a platform that gpuform applies, `gpuform destroy {stack}` first"
        raise InputError("--only", fact, remedy)
    types = {str(item["type"]).rpartition(":") for item in resources}
    parts = {name for package, _, name in types if package == "gpuform:platform"} - set(_OWN)
    if only and not before and parts:
        fact = f"{stack} has applied the platform itself ({len(parts)} parts), and would delete it"
        raise InputError("--only", fact, f"leave it out, or `gpuform destroy {stack}` first")
