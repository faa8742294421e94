"""The order of a destroy. Each step can be repeated, so the same command continues a killed run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Name = Literal[
    "workloads", "load balancers", "volumes", "pools", "classes", "cluster", "leftovers", "network", "stack"
]


@dataclass(frozen=True)
class Step:
    """What is done, and its time limit in seconds; None: the engine's own limits."""

    name: Name
    does: str
    bound_s: float | None = None


OF_OTHERS: tuple[Step, ...] = (Step("stack", "the engine deletes all that it created, in reverse order"),)
"""Steps of every other stack: it consists of objects of a cluster, and the engine knows their order."""
BY_ENGINE: tuple[Name, ...] = ("cluster", "network", "stack")
"""Steps that the engine does, which locks the stack itself."""
