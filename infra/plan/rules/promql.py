"""Rules as Prometheus reads them, and names that several files or programs use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.model.base.labels import (
    DRIVER_UPGRADE_SKIP,
    DRIVER_UPGRADE_STATE,
    GPU_NOT_READY,
    GPU_UNHEALTHY,
    INSTANCE_GPU_COUNT,
    MIG_CONFIG_STATE,
    POOL,
)
from infra.model.base.namespaces import PLACEHOLDER
from infra.plan.scraping import JOB

Rule = dict[str, Any]

NODE_INFO = "gpuform:node:info"
UTILISATION = "gpuform:device:util_ratio"
MEMORY_USED = "gpuform:device:memory_used_bytes"
MEMORY_TOTAL = "gpuform:device:memory_total_bytes"
POWER = "gpuform:gpu:power_watts"
TEMPERATURE = "gpuform:gpu:temperature_celsius"
POD_USED = "gpuform:pod:gpus_used"
POOL_REQUESTED = "gpuform:pool:gpus_requested"
POOL_USED = "gpuform:pool:gpus_used"
ACTIVE = "gpuform:fault:active"
NODE_LABELS = (POOL, INSTANCE_GPU_COUNT, DRIVER_UPGRADE_STATE, DRIVER_UPGRADE_SKIP, MIG_CONFIG_STATE)
"""Node labels that kube-state-metrics must export (its metric-labels-allowlist)."""
COMMON = {
    # Matchers of the exporter's samples that name GPU and node.
    "dcgm": f'job="{JOB}",gpu!="",node!=""',
    # The node's pool; without that label if the pool is unknown or there is none.
    "with_pool": "* on (node) group_left (pool) gpuform:node:known",
    "ready": 'max by (node) (kube_node_status_condition{condition="Ready",status="true"} == 1)',
    "job": JOB,
    "placeholders": PLACEHOLDER,
    "not_ready": GPU_NOT_READY,
    "unhealthy": GPU_UNHEALTHY,
}
"""What every file of rules is completed with."""


def one_line(expression: str) -> str:
    """An expression on one line."""
    return " ".join(expression.split())


def record(name: str, expression: str, labels: Mapping[str, str] | None = None) -> Rule:
    """A recording rule."""
    rule: Rule = {"record": name, "expr": one_line(expression)}
    return {**rule, "labels": dict(labels)} if labels else rule


def constant(name: str, value: float, labels: Mapping[str, str]) -> Rule:
    """A fact of the environment as a series."""
    return record(name, f"vector({number(value)})", labels)


def number(value: float) -> str:
    """A number as PromQL reads it, without needless digits."""
    return f"{value:.10g}"


def label(name: str) -> str:
    """A node's label or a resource, as kube-state-metrics spells it."""
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in name)
