"""Every alert of an environment."""

from __future__ import annotations

from infra.model.environment import Environment
from infra.plan.rules import alerts_gpu, alerts_health, alerts_nodes, alerts_serving, alerts_use, alerts_xid
from infra.plan.rules.alert import Alert


def every(env: Environment) -> tuple[Alert, ...]:
    """All alerts, in the order of the page that lists them.

    Alerts about something that the environment does not have, such as NodePools, are included but never fire.
    """
    return (
        *alerts_xid.alerts(),
        *alerts_gpu.alerts(env),
        *alerts_nodes.alerts(),
        *alerts_use.alerts(env),
        *alerts_serving.alerts(env),
        *alerts_health.alerts(env),
    )
