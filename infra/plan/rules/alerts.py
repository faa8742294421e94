"""Every alert of an environment: YAML files by subject, completed with what the environment declares.

An expression that is a list is its parts joined by ``or``. A part with ``when`` or ``each``
(``infra.plan.templates``) is there only if the environment has something that it could be about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from infra.model.environment import Environment
from infra.model.gpu import xid
from infra.model.gpu.drivers import needs_fabric_manager
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig, TimeSlicing
from infra.model.workload.workload import InferenceWorkload
from infra.plan import quotas, serving, templates, workloads
from infra.plan.rules.promql import COMMON, one_line
from infra.plan.sharing import NAMESPACE

Severity = Literal["critical", "warning", "info"]

RUNBOOKS = "docs/runbooks"
"""Path of the runbooks in the project."""
_FILES = ("xid", "gpu", "nodes", "use", "serving", "health")
"""In the order of the page that lists the alerts."""
_NOTHING = "vector(0) > 0"
"""Matches no series: the environment has nothing that the alert could be about."""
_COMMON = {
    **COMMON,
    "gpu": "GPU {{ $labels.gpu }} ({{ $labels.UUID }}) of node {{ $labels.node }}",
    "pool": "Pool: {{ $labels.pool }}.",
    "operator": NAMESPACE,
    **{f"asks_{kind}": asks for kind, asks in xid.ACTIONS.items()},
}


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One alert; ``wait`` is its ``for`` in Prometheus' format, None to fire at once.

    ``means`` is one sentence for the list of alerts; summary and description may use labels. critical: work
    or a GPU is lost; warning: either will be, or money is; info: worth knowing, without a page.
    """

    name: str
    severity: Severity
    wait: str | None
    expr: str
    means: str
    summary: str
    description: str

    def rule(self, pages: str = "") -> dict[str, Any]:
        """The alerting rule as Prometheus reads it; ``pages`` is the prefix of its runbook's path."""
        return {
            "alert": self.name,
            "expr": self.expr,
            **({"for": self.wait} if self.wait else {}),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{pages}{RUNBOOKS}/{self.name}.md",
            },
        }


def runbook_prefix(env: Environment) -> str:
    """Prefix of the runbooks' paths: the environment's address with a slash, or empty."""
    address = env.monitoring.runbooks if env.monitoring else None
    return f"{address.rstrip('/')}/" if address else ""


def all_alerts(env: Environment) -> Iterator[Alert]:
    """All alerts. Those about something that the environment does not have are included but never fire."""
    values = _values(env)
    for subject in _FILES:
        file = templates.read(Path(__file__).with_name(f"alerts_{subject}.yaml"))
        for row in templates.fill(file["alerts"], templates.with_let(file.get("let", {}), values)):
            parts = [row["expr"]] if isinstance(row["expr"], str) else row["expr"]
            joined = " or ".join(part if isinstance(part, str) else part["expr"] for part in parts)
            yield Alert(
                name=row["alert"],
                severity=row["severity"],
                wait=row.get("for"),
                expr=one_line(joined or _NOTHING),
                means=row["means"],
                summary=row["summary"],
                description=row["description"],
            )


def _values(env: Environment) -> dict[str, Any]:
    scaled = [work for work in env.workloads if isinstance(work, InferenceWorkload) and work.scale]
    minutes = [workloads.wait_minutes(env, work)[0] for work in scaled]
    return {
        **_COMMON,
        "switched": "|".join(pool.name for pool in env.pools if has_nvswitch(pool)),
        "turns": "|".join(pool.name for pool in env.pools if _is_time_sliced(pool)),
        "spare": list(_spare(env)),
        "queues": "|".join(team.name for team in env.queues.teams) if env.queues else "",
        "scaled": [_matchers(work) for work in scaled],
        "growing": [_matchers(work) for work in scaled if work.scale and work.scale.min < work.scale.max],
        "start": f"{max(minutes, default=serving.IMAGE_MINUTES)}m",
        "health": env.health,
        "no_health": env.health is None,
    }


def has_nvswitch(pool: Pool) -> bool:
    """Whether the pool's machines link their GPUs by NVSwitches."""
    return bool(pool.gpus) and all(needs_fabric_manager(gpu, pool.gpu_counts[-1]) for gpu in pool.gpus)


def _is_time_sliced(pool: Pool) -> bool:
    """Whether several pods share one memory without limits."""
    sharing = pool.sharing
    return isinstance(sharing, TimeSlicing) or (isinstance(sharing, Mig) and sharing.share is not None)


def _spare(env: Environment) -> Iterator[dict[str, Any]]:
    """Deployments that keep nodes free."""
    for deployment in quotas.placeholders(env):
        pool = deployment["spec"]["template"]["spec"]["nodeSelector"]
        replicas = deployment["spec"]["replicas"]
        yield {"name": deployment["metadata"]["name"], "of": next(iter(pool.values())), "replicas": replicas}


def _matchers(work: InferenceWorkload) -> dict[str, str]:
    """Matchers of the autoscaler that KEDA makes, and of the pods."""
    autoscaler = f'namespace="{work.namespace}",horizontalpodautoscaler="keda-hpa-{work.name}"'
    return {"autoscaler": autoscaler, "pods": pods(work)}


def pods(work: InferenceWorkload) -> str:
    """Matchers of the pods of the workload's Deployment."""
    return f'namespace="{work.namespace}",pod=~"{work.deployment_name}-[a-z0-9]+-[a-z0-9]{{5}}"'
