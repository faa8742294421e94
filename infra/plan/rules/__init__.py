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
from infra.plan.rules import alerts, facts
from infra.plan.rules.promql import COMMON, Rule, label, record

Group = dict[str, Any]

_CLOUD, _KUBELET = "kubernetes_io:node_accelerator_", "container_accelerator_"
_IN_CLOUD, _BY_INDEX = ("node_name", "accelerator_id"), ("node_name", "accelerator_index")
_OLD = ("node", "acc_id")
_GKE_FORMS = (
    (*_IN_CLOUD, f"{_CLOUD}duty_cycle", f"{_CLOUD}memory_used", f"{_CLOUD}memory_total"),
    (*_BY_INDEX, "duty_cycle_gpu_node", "memory_used_gpu_node", "memory_total_gpu_node"),
    (*_OLD, f"{_KUBELET}duty_cycle", f"{_KUBELET}memory_used_bytes", f"{_KUBELET}memory_total_bytes"),
)
"""Labels of node and device, and three metrics, the first in percent; see ``recorded.yaml``."""
_TENSORCORE = (*_IN_CLOUD, f"{_CLOUD}tensorcore_utilization")
"""For devices without a duty cycle, in percent as well."""


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
    """A series is recorded by one expression, those of a list joined by ``or``, or one for each reason."""
    for name, expressions in part.items():
        items = [{"expr": expressions}] if isinstance(expressions, str) else expressions
        if parts := [item["expr"] for item in items if "reason" not in item]:
            yield record(name, " or ".join(parts))
        for item in items:
            if "reason" in item:
                yield record(name, item["expr"], {"reason": item["reason"]})


def _values(env: Environment, fact_series: set[str]) -> dict[str, Any]:
    """A pool is limited by Karpenter, or by its number of nodes (a node group)."""
    on_gke = isinstance(env.cluster, ExistingCluster)
    accelerators = _of_gke()
    elastic, counted = facts.NODE_SIZE in fact_series, facts.MAX_NODES in fact_series
    return {
        **COMMON,
        **accelerators,
        **{kind: "|".join(map(str, xid.numbers(kind))) for kind in xid.CLASSES},
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
        "karpenter": elastic and any(pool.elastic and not pool.bounds for pool in env.pools),
        "node_groups": counted,
    }


def _of_gke() -> dict[str, str]:
    """PromQL of the part of time in which each device was busy, and of its memory in bytes."""
    busy = [_as_dcgm(*form[:3]) for form in _GKE_FORMS] + [_as_dcgm(*_TENSORCORE)]
    used, total = ([_as_dcgm(form[0], form[1], form[at]) for form in _GKE_FORMS] for at in (3, 4))
    parts = {"gke_util": [f"({metric}) / 100" for metric in busy], "gke_used": used, "gke_total": total}
    return {name: " or on (node,gpu) ".join(f"({each})" for each in found) for name, found in parts.items()}


def _as_dcgm(node: str, gpu: str, metric: str) -> str:
    """The metric with DCGM's labels; GKE has no UUID, so its device id is used instead."""
    expression = f'{metric}{{{node}!="",{gpu}!=""}}'
    for target, source in (("node", node), ("gpu", gpu), ("UUID", gpu), ("modelName", "model")):
        if target != source:
            expression = f'label_replace({expression},"{target}","$1","{source}","(.+)")'
    return f"max by (node,gpu,UUID,modelName) ({expression})"
