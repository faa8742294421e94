"""The stacks of a checkout, by name."""

from __future__ import annotations

from pathlib import Path

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stack_names import list_stack_names
from infra.config import load
from infra.model.base.fields import listing
from infra.model.environment import Environment


def load_environment(stack: str, paths: Paths) -> Environment:
    """The environment of ``Pulumi.STACK.yaml``; without the file, InputError lists the known stacks."""
    return load(stack_file(stack, paths))


def stack_file(stack: str, paths: Paths) -> Path:
    """Path of ``Pulumi.STACK.yaml``; without the file, InputError lists the known stacks."""
    file = paths.root / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        try:
            known = list_stack_names(paths.root)
        except ValueError as error:
            raise InputError("STACK", f"unknown stack {stack!r}; {error}", "then try again") from None
        raise InputError(
            "STACK",
            f"unknown stack {stack!r}",
            listing(known, stack) if known else "create one: gpuform init STACK",
        )
    return file
