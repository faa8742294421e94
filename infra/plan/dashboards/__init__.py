"""Grafana dashboards of an environment, as code.

They query the recorded series (``infra.plan.rules``); NVIDIA's own series only for the GPU itself: on the
dashboards devices and pipes, and for the errors on health. A panel that could never show anything in this
environment is left out: quotas if no namespace has one, Karpenter's limits if no pool uses Karpenter, cost if
no price is known.
"""

from __future__ import annotations

from typing import Any

from infra.model.environment import Environment

NAMES = ("fleet", "capacity", "devices", "pipes", "sharing", "cost", "health")
"""The dashboards of every environment, in reading order."""


def dashboards(env: Environment) -> dict[str, dict[str, Any]]:
    """JSON model of each dashboard by name; the same environment gives the same bytes.

    Grafana's SDK is imported here, so that a program without monitoring does not wait for it.
    """
    from infra.plan.dashboards import boards, grafana

    return {board.name: grafana.model(board) for board in boards.boards(env)}
