"""Grafana dashboards of an environment: a YAML file each, completed with what the environment declares.

A file has rows of panels, from left to right; a panel that does not fit starts a new line. The first key of
a panel is its kind (``panels.py``), with its title; ``help`` is shown at its corner. ``width`` and ``height``
are Grafana's grid: 24 columns, lines of about 30 pixels. ``let`` names expressions of the file.

They query the recorded series (``infra.plan.rules``); NVIDIA's own series only for the GPU itself: on the
dashboards devices and pipes, and for the errors on health. A panel that could never show anything in this
environment is left out (``when``): quotas if no namespace has one, Karpenter's limits if no pool uses
Karpenter, cost if no price is known. Panels with one line for each GPU or slice show the highest 50: 1000
GPUs can have 7000 slices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.model.environment import Environment
from infra.plan import templates
from infra.plan.dashboards.values import values

NAMES = ("fleet", "capacity", "devices", "pipes", "sharing", "cost", "health")
"""The dashboards of every environment, in reading order."""

_SIMULATED = (
    "**Simulated.** The nodes of this environment and all metrics of their GPUs come from gpuform's "
    "simulator. Prometheus, kube-state-metrics, the rules and these queries are real."
)
_NOTE = {"About this dashboard": [{"text": "", "content": _SIMULATED}]}
"""First row of each dashboard if the nodes are simulated."""


def dashboards(env: Environment) -> dict[str, dict[str, Any]]:
    """JSON model of each dashboard by name; the same environment gives the same bytes.

    Grafana's SDK is imported here, so that a program without monitoring does not wait for it.
    """
    from infra.plan.dashboards import grafana

    known, note = values(env), _NOTE if env.cluster.kind == "embedded" else {}
    found = {}
    for name in NAMES:
        board = templates.read(Path(__file__).with_name(f"{name}.yaml"))
        rows = templates.complete(board["rows"], templates.named(board.get("let", {}), known))
        found[name] = grafana.model({**board, "name": name, "rows": {**note, **rows}})
    return found
