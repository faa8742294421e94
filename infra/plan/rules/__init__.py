"""Recording rules and alerts of an environment, as Prometheus' rule groups.

Deterministic: the same environment gives the same groups. Recorded series are named
``gpuform:<object>:<metric>``; ``docs/reference/alerts.md`` lists the alerts. Durations are literals in the
rules' text, so that a rehearsal can shorten them. Rules of a group run in the given order, at each evaluation
(``monitoring.interval``); the group hours runs once a minute.
"""

from __future__ import annotations

from typing import Any

from infra.model.environment import Environment
from infra.plan.rules import alerts, attribution, capacity, devices, facts, faults

Group = dict[str, Any]


def groups(env: Environment) -> list[Group]:
    """Every rule group of the environment; empty without GPUs."""
    if not any(pool.gpus for pool in env.pools):
        return []
    told = {rule.get("record") for rule in facts.rules(env)}
    recorded = [devices.node_info(), *facts.rules(env), *devices.rules(env), *attribution.rules()]
    recorded += capacity.rules(facts.NODE_SIZE in told, facts.NODE_MOST in told, env.queues is not None)
    return [
        {"name": "gpuform.recorded", "rules": recorded},
        {"name": "gpuform.faults", "rules": list(faults.rules())},
        {"name": "gpuform.hours", "interval": "1m", "rules": list(attribution.hours())},
        {"name": "gpuform.alerts", "rules": [one.rule(alerts.pages(env)) for one in alerts.every(env)]},
    ]
