"""What every alert has: a name, when it fires, how grave it is, and words that a person can act on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from infra.model.environment import Environment
from infra.plan.rules.promql import text

Severity = Literal["critical", "warning", "info"]

RUNBOOKS = "docs/runbooks"
"""Where the runbooks lie, in the project."""
GPU_WHERE = "GPU {{ $labels.gpu }} ({{ $labels.UUID }}) of node {{ $labels.node }}"
"""A GPU, in an annotation."""
POOL_WHERE = "Pool: {{ $labels.pool }}."


def pages(env: Environment) -> str:
    """What a path in the project is put behind: the address that the environment gives, or nothing."""
    given = env.monitoring.runbooks if env.monitoring else None
    return f"{given.rstrip('/')}/" if given else ""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One alert; ``wait`` is how long it must hold, as Prometheus writes it, none for at once.

    ``means`` is one sentence for the list of alerts; summary and description may name labels. critical: work
    is lost or a GPU is; warning: it will be, or money is; info: worth knowing, nobody is called.
    """

    name: str
    severity: Severity
    wait: str | None = None
    expr: str
    means: str
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """Its page, as a path in the project."""
        return f"{RUNBOOKS}/{self.name}.md"

    def rule(self, pages: str = "") -> dict[str, Any]:
        """The alert as Prometheus reads it; ``pages`` is what its runbook's path is put behind."""
        return {
            "alert": self.name,
            "expr": text(self.expr),
            **({"for": self.wait} if self.wait else {}),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{pages}{self.runbook}",
            },
        }
