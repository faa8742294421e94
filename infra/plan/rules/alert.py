"""The form of an alert: name, expression, severity, and texts that a person can act on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from infra.model.environment import Environment
from infra.plan.rules.promql import text

Severity = Literal["critical", "warning", "info"]

RUNBOOKS = "docs/runbooks"
"""Path of the runbooks in the project."""
GPU_WHERE = "GPU {{ $labels.gpu }} ({{ $labels.UUID }}) of node {{ $labels.node }}"
"""Names a GPU in an annotation."""
POOL_WHERE = "Pool: {{ $labels.pool }}."

NOTHING = "vector(0) > 0"
"""Matches no series: the environment has nothing that the alert could be about."""


def pages(env: Environment) -> str:
    """Prefix of the runbooks' paths: the environment's address with a slash, or empty."""
    given = env.monitoring.runbooks if env.monitoring else None
    return f"{given.rstrip('/')}/" if given else ""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One alert; ``wait`` is its ``for`` in Prometheus' format, None to fire at once.

    ``means`` is one sentence for the list of alerts; summary and description may use labels. critical: work
    or a GPU is lost; warning: either will be, or money is; info: worth knowing, without a page.
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
        return f"{RUNBOOKS}/{self.name}.md"

    def rule(self, pages: str = "") -> dict[str, Any]:
        """The alerting rule as Prometheus reads it; ``pages`` is the prefix of its runbook's path."""
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
