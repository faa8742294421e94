"""Preflight: checks of an account or a cluster before anything is created in it. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from gpuform.checkout.paths import Paths
from gpuform.stack.preflight import charts
from gpuform.stack.preflight.check import Finding
from infra.model.environment import Environment


class Checks(Protocol):
    """All checks of one kind of cluster; ``paths`` and ``stack`` locate the state and name the commands."""

    def __call__(self, env: Environment, paths: Paths, stack: str) -> Iterator[Finding]: ...


@dataclass(frozen=True)
class Preflight:
    """The checks, and whether an update is preceded by them."""

    checks: Checks
    before_update: bool = True


def nothing_to_check(fact: str, fix: str = "") -> Preflight:
    """For a kind without an account: the reason, and the command that checks it, for {stack}."""

    def checks(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
        yield Finding(f"stack {stack}", "SKIP", f"nothing to check: {fact}", fix.format(stack=stack))

    return Preflight(checks, before_update=False)


def run_checks(preflight: Preflight, env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    """The findings, one after another."""
    yield from preflight.checks(env, paths, stack)
    if preflight.before_update:
        yield from charts.findings(env, paths, stack)
