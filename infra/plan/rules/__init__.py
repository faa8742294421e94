"""Recording rules and alerts of an environment, as Prometheus' rule groups.

They are YAML files, completed with what the environment declares (``infra.plan.templates``). Facts of its
pools come first, so that the other rules are the same on every stack. The same environment gives the same
groups. ``docs/reference/alerts.md`` lists the alerts. Durations are literals in the rules' text, so that a
rehearsal can shorten them. Rules of a group run in the given order, at each evaluation
(``monitoring.interval``); the group hours runs once a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.model.base.labels import POOL, QUEUE_ADMITTED, QUEUE_MANAGED
from infra.model.clusters import ExistingCluster
from infra.model.environment import Environment
from infra.model.gpu import xid
from infra.plan import templates
from infra.plan.rules import alerts, facts, gke
from infra.plan.rules.promql import COMMON, Rule, any_of, label, record

Group = dict[str, Any]


def groups(env: Environment) -> list[Group]:
    """Every rule group of the environment; empty without GPUs."""
    if not any(pool.gpus for pool in env.pools):
        return []
    fact_rules = list(facts.rules(env))
    file = templates.read(Path(__file__).with_name("recorded.yaml"))
    values = templates.with_let(file["let"], _values(env, {rule["record"] for rule in fact_rules}))

    def recorded(part: str) -> list[Rule]:
        return list(_rules(templates.fill(file[part], values)))

    return [
        {"name": "gpuform.recorded", "rules": [*recorded("node"), *fact_rules, *recorded("recorded")]},
        {"name": "gpuform.faults", "rules": recorded("faults")},
        {"name": "gpuform.hours", "interval": "1m", "rules": recorded("hours")},
        {
            "name": "gpuform.alerts",
            "rules": [alert.rule(alerts.runbook_prefix(env)) for alert in alerts.all_alerts(env)],
        },
    ]


def _rules(part: Mapping[str, Any]) -> Iterator[Rule]:
    """A series is recorded by one expression, or by those of a list, each with its labels."""
    for name, expressions in part.items():
        for item in [{"expr": expressions}] if isinstance(expressions, str) else expressions:
            yield record(name, item["expr"], {"reason": item["reason"]} if "reason" in item else None)


def _values(env: Environment, fact_series: set[str]) -> dict[str, Any]:
    """A pool is limited by Karpenter, or by its number of nodes (Magnum)."""
    on_gke = isinstance(env.cluster, ExistingCluster)
    accelerators = gke.expressions()
    elastic, counted = facts.NODE_SIZE in fact_series, facts.MAX_NODES in fact_series
    return {
        **COMMON,
        **accelerators,
        **{kind: any_of(map(str, xid.numbers(kind))) for kind in xid.CLASSES},
        "label": f"label_{label(POOL)}",
        "managed": label(QUEUE_MANAGED),
        "admitted": label(QUEUE_ADMITTED),
        "or_gke_nodes": f" or group by (node) ({accelerators['gke_total']})" if on_gke else "",
        "gke": on_gke,
        "no_gke": not on_gke,
        "queues": env.queues,
        "no_queues": env.queues is None,
        "elastic": elastic,
        "not_elastic": not elastic,
        "karpenter": elastic and not counted,
        "node_groups": counted,
    }
