"""The dashboards of an environment as panels and queries, independent of Grafana's model."""

from __future__ import annotations

from dataclasses import replace

from infra.model.environment import Environment
from infra.plan.dashboards import capacity, cost, devices, fleet, health, pipes, sharing
from infra.plan.dashboards.spec import Board, Section, Text

_SIMULATED = (
    "**Simulated.** The nodes of this environment and all metrics of their GPUs come from gpuform's "
    "simulator. Prometheus, kube-state-metrics, the rules and these queries are real."
)


def boards(env: Environment) -> tuple[Board, ...]:
    """Every board, in the order of ``NAMES``; if the nodes are simulated, each begins with a note."""
    found = (
        fleet.board(env),
        capacity.board(env),
        devices.board(env),
        pipes.board(),
        sharing.board(),
        cost.board(env),
        health.board(env),
    )
    return tuple(map(_said, found)) if env.cluster.kind == "embedded" else found


def _said(board: Board) -> Board:
    text = Text(title="", description="", content=_SIMULATED)
    return replace(board, sections=(Section("About this dashboard", (text,)), *board.sections))
