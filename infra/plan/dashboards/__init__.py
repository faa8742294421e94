"""Grafana's dashboards of an environment, as code.

They read what the recording rules record (``infra.plan.rules``); NVIDIA's own series only where a question
is about the GPU itself: the dashboards of devices and pipes, and what health shows of errors. A panel that
could never show anything in this environment is left out: quotas where no namespace has one, Karpenter's
limits where no pool is its own, money where no price is known.
"""

from __future__ import annotations

from typing import Any

from infra.model.environment import Environment

NAMES = ("fleet", "capacity", "devices", "pipes", "sharing", "cost", "health")
"""The dashboards that every environment has, in the order in which they are read."""


def dashboards(env: Environment) -> dict[str, dict[str, Any]]:
    """Each dashboard's JSON model by its name; the same environment gives the same bytes.

    Grafana's SDK is loaded here and not before: a program without monitoring does not wait for it.
    """
    from infra.plan.dashboards import boards, grafana

    return {board.name: grafana.model(board) for board in boards.boards(env)}
