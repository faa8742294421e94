"""Every alert of an environment, by what it is about."""

from __future__ import annotations

from infra.model.environment import Environment
from infra.plan.rules import alerts_gpu, alerts_health, alerts_nodes, alerts_use, alerts_xid
from infra.plan.rules.alert import Alert


def every(env: Environment) -> tuple[Alert, ...]:
    """In the order of the page that lists them.

    An alert about something that the environment has not, such as NodePools, is there all the same: it has
    nothing to fire on.
    """
    return (
        *alerts_xid.alerts(),
        *alerts_gpu.alerts(env),
        *alerts_nodes.alerts(),
        *alerts_use.alerts(env),
        *alerts_health.alerts(env),
    )
