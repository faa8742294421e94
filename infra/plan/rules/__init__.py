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

from infra.model import xid
from infra.model.clusters import ExistingCluster
from infra.model.environment import Environment
from infra.model.labels import POOL, QUEUE_ADMITTED, QUEUE_MANAGED
from infra.plan import templates
from infra.plan.rules import alerts, facts, gke
from infra.plan.rules.promql import COMMON, Rule, label, one_of, record

Group = dict[str, Any]


def groups(env: Environment) -> list[Group]:
    """Every rule group of the environment; empty without GPUs."""
    if not any(pool.gpus for pool in env.pools):
        return []
    known = list(facts.rules(env))
    file = templates.read(Path(__file__).with_name("recorded.yaml"))
    values = templates.named(file["let"], _values(env, {rule["record"] for rule in known}))

    def recorded(part: str) -> list[Rule]:
        return list(_rules(templates.complete(file[part], values)))

    return [
        {"name": "gpuform.recorded", "rules": [*recorded("node"), *known, *recorded("recorded")]},
        {"name": "gpuform.faults", "rules": recorded("faults")},
        {"name": "gpuform.hours", "interval": "1m", "rules": recorded("hours")},
        {"name": "gpuform.alerts", "rules": [one.rule(alerts.pages(env)) for one in alerts.every(env)]},
    ]


def _rules(part: Mapping[str, Any]) -> Iterator[Rule]:
    """A series is recorded by one expression, or by those of a list, each with its labels."""
    for name, given in part.items():
        for one in [{"expr": given}] if isinstance(given, str) else given:
            yield record(name, one["expr"], {"reason": one["reason"]} if "reason" in one else None)


def _values(env: Environment, known: set[str]) -> dict[str, Any]:
    """``known``: series of facts. A pool is limited by Karpenter, or by its number of nodes (Magnum)."""
    on_gke = isinstance(env.cluster, ExistingCluster)
    accelerators = gke.expressions()
    elastic, counted = facts.NODE_SIZE in known, facts.NODE_MOST in known
    return {
        **COMMON,
        **accelerators,
        **{kind: one_of(map(str, xid.numbers(kind))) for kind in xid.CLASSES},
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
