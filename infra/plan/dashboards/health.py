"""Health: alerts with their runbooks, faults, errors, and nodes that offer too few GPUs."""

from __future__ import annotations

from infra.model import labels
from infra.model.environment import Environment
from infra.plan.dashboards import errors
from infra.plan.dashboards.devices import has_nvlink
from infra.plan.dashboards.spec import (
    NODE,
    POOL,
    Alerts,
    Bars,
    Board,
    Column,
    Query,
    Section,
    Series,
    Stat,
    Table,
    of_pool,
    to,
)
from infra.plan.rules.alert import RUNBOOKS, pages
from infra.plan.scraping import JOB

_FIRING = f'ALERTS{{alertstate="firing", alertname=~"Gpu.+", {POOL}}}'
_FAULT = f"gpuform:fault:active{{{POOL}, {NODE}}}"
_MENDED = f'gpuform:fault:active{{{POOL}, {NODE}, class=~"reset|replace"}}'
_EXPORTER = of_pool(f'up{{job="{JOB}", {NODE}}}')
_KEPT = of_pool(f'kube_node_spec_taint{{key="{labels.GPU_UNHEALTHY}", {NODE}}}')
_BAD = ((1, "red"),)


def board(env: Environment) -> Board:
    """The dashboard; MIG layouts only if the MIG manager applies any, NVLink only if a GPU may have it."""
    cut = env.has_mig_manager and any(pool.layout for pool in env.pools)
    return Board(
        "health",
        "GPU health",
        "Alerts with their runbooks, faults by class, errors, and nodes that offer less than they should.",
        (_now(), _alerts(pages(env)), _faults(), _nodes(cut), errors.section(has_nvlink(env))),
        hours=12,
    )


def _now() -> Section:
    declared, offered = (f"gpuform:pool:gpus_{what}{{{POOL}}}" for what in _TWO)

    def alerts(severity: str) -> str:
        firing = f'ALERTS{{alertstate="firing", alertname=~"Gpu.+", severity="{severity}", {POOL}}}'
        return f"count({firing}) or vector(0)"

    return Section(
        "Now",
        (
            Stat(
                title="Critical alerts",
                description="Act now.",
                expr=alerts("critical"),
                unit="short",
                steps=_BAD,
            ),
            Stat(
                title="Warnings",
                description="Check today.",
                expr=alerts("warning"),
                unit="short",
                steps=((1, "orange"),),
            ),
            Stat(
                title="GPUs with a fault",
                description="GPUs that need a reset or a replacement; application faults are not counted.",
                expr=f"count(count by (node, gpu) ({_MENDED})) or vector(0)",
                unit="short",
                steps=_BAD,
            ),
            Stat(
                title="GPUs missing",
                description="Declared by the pools and not allocatable on any node, in whole GPUs.",
                expr=f"round(sum(clamp_min({declared} - {offered}, 0)), 0.01)",
                unit="short",
                steps=((0.01, "red"),),
            ),
            Stat(
                title="Tainted nodes (GPU fault)",
                description="Nodes with the taint of an unhealthy GPU: no new pods are placed on them.",
                expr=f"count({_KEPT}) or vector(0)",
                unit="short",
                steps=_BAD,
            ),
            Stat(
                title="Exporters down",
                description="Nodes without GPU metrics: this dashboard shows nothing else about them.",
                expr=f"count({_EXPORTER} == 0) or vector(0)",
                unit="short",
                steps=_BAD,
            ),
        ),
    )


def _alerts(behind: str) -> Section:
    """``behind`` is the base URL of the runbooks; if empty, their cells have no link."""
    keys = "alertname, severity, pool, node, gpu, namespace, pod"
    runbook = f"{behind}{RUNBOOKS}/$1.md"
    named = f'label_replace({_FIRING}, "runbook", "{runbook}", "alertname", "(.+)")'
    since = f'max by ({keys}) (time() - ALERTS_FOR_STATE{{alertname=~"Gpu.+", {POOL}}})'
    firing = f"max by ({keys}, runbook) ({named})"
    led = {"node": ("GPUs of the node", to("devices", "node"))}
    if behind:
        led["runbook"] = ("What to do", "${__value.raw}")
    return Section(
        "Alerts",
        (
            Table(
                title="Firing",
                description="The runbook of each alert says what it means and what to do.",
                keys={
                    "alertname": "Alert",
                    "severity": "Severity",
                    "pool": "Pool",
                    "node": "Node",
                    "gpu": "GPU",
                    "namespace": "Namespace",
                    "pod": "Pod",
                    "runbook": "Runbook",
                },
                columns=(Column("Since", f"{firing} * on ({keys}) group_left () {since}", "s"),),
                links=led,
                sort="Since",
                width=16,
                height=10,
            ),
            Alerts(
                title="Pending and firing",
                description="Grafana's list of the same alerts, with summaries; pending ones are not "
                "confirmed yet.",
                prefix="Gpu",
                width=8,
            ),
        ),
    )


def _faults() -> Section:
    keys = "node, pool, gpu, UUID, xid, class, reason"
    table = Table(
        title="Faults",
        description="Faults that the health loop acts on. Application: an error of the pod. Reset: the GPU "
        "must be reset. Replace: the GPU or the node must be replaced. Informational: nothing to do.",
        keys={
            "node": "Node",
            "pool": "Pool",
            "gpu": "GPU",
            "UUID": "UUID",
            "xid": "XID",
            "class": "Class",
            "reason": "Reason",
        },
        columns=(Column("Active", f"max by ({keys}) ({_FAULT})", "short"),),
        links={"node": ("GPUs of the node", to("devices", "node"))},
        sort="Node",
        width=14,
    )
    course = Series(
        title="Faults by class",
        description="GPUs with a fault of each class.",
        queries=(Query(f"count by (class) (count by (class, node, gpu) ({_FAULT}))", "{{class}}"),),
        unit="short",
        stacked=True,
        width=10,
    )
    return Section("Faults", (table, course))


def _nodes(cut: bool) -> Section:
    declared, offered = (f"sum by (pool) (gpuform:pool:gpus_{what}{{{POOL}}})" for what in _TWO)
    return Section(
        "Nodes",
        (
            Series(
                title="Declared and allocatable GPUs",
                description="In whole GPUs. Allocatable below declared: nodes are missing, or offer too few.",
                queries=(Query(declared, "{{pool}} declared"), Query(offered, "{{pool}} allocatable")),
                unit="short",
                width=8,
            ),
            Bars(
                title="Exporters",
                description="1 if the exporter of the node answers, 0 if not.",
                queries=(Query(f"max by (node) ({_EXPORTER})", "{{node}}"),),
                unit="short",
                most=1,
                steps=((0, "red"), (1, "green")),
                width=8,
            ),
            *((_layouts(),) if cut else ()),
        ),
    )


def _layouts() -> Table:
    config, state = "label_nvidia_com_mig_config", "label_nvidia_com_mig_config_state"
    nodes = of_pool(f'kube_node_labels{{{config}!="", {NODE}}}')
    return Table(
        title="MIG layouts",
        description="MIG layouts set on the nodes, and their state.",
        keys={"pool": "Pool", config: "Layout", state: "State"},
        columns=(Column("Nodes", f"count by (pool, {config}, {state}) ({nodes})", "short"),),
        links={},
        sort="Nodes",
        width=8,
    )


_TWO = ("declared", "allocatable")
