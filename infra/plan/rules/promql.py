"""Building blocks of expressions: DCGM's series, and joins with a node's pool.

Nothing here needs a label that an exporter may omit: a series of DCGM counts if it names its GPU. The scrape
names the node, and the exporter's own job, so that no other target's series is taken for it. An exporter
repeats a GPU's metrics for each MIG instance, so an expression reads a fleet's series as few times as it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from infra.model.labels import DRIVER_UPGRADE_STATE, INSTANCE_GPU_COUNT, MIG_CONFIG_STATE, POOL
from infra.plan.scraping import JOB

Rule = dict[str, Any]

GPU = ("node", "gpu", "UUID", "modelName")
DEVICE = (*GPU, "GPU_I_ID", "GPU_I_PROFILE")
"""Labels that identify a device; a GPU without MIG has no instance id and no profile."""

NODE_INFO = "gpuform:node:info"
NODE_KNOWN = "gpuform:node:known"
"""Also has nodes with reported GPUs and an unknown pool; those have no label pool."""
WITH_POOL = f"* on (node) group_left (pool) {NODE_KNOWN}"
DCGM = f'job="{JOB}",gpu!="",node!=""'
"""Matchers of the exporter's samples that name GPU and node."""
NODE_LABELS = (POOL, INSTANCE_GPU_COUNT, DRIVER_UPGRADE_STATE, MIG_CONFIG_STATE)
"""Node labels that kube-state-metrics must export (its metric-labels-allowlist)."""
RANGE = "5m"
"""Range of rates: with a scrape every 30 seconds, a restart of the exporter does not empty it."""


def text(expression: str) -> str:
    """An expression on one line."""
    return " ".join(expression.split())


def record(name: str, expression: str, labels: Mapping[str, str] | None = None) -> Rule:
    """A recording rule."""
    rule: Rule = {"record": name, "expr": text(expression)}
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


def one_of(values: Iterable[str]) -> str:
    """A regular expression that matches each of the values and no other."""
    return "|".join(values)


def dcgm(name: str, matchers: str = "", over: str = "", window: str = RANGE) -> str:
    """Samples of a DCGM metric that name GPU and node; ``over`` is a function over ``window``, if given."""
    found = f"{name}{{{DCGM}{',' if matchers else ''}{matchers}}}"
    return f"{over}({found}[{window}])" if over else found


def recorded(name: str) -> str:
    """A recorded series without an exporter's of that name: each scraped one has a job."""
    return f'{name}{{job=""}}'


def most(keys: Iterable[str], expression: str) -> str:
    """One value per combination of labels, whichever exporter, pod or container it came from."""
    return f"max by ({','.join(keys)}) ({expression})"


def with_pool(expression: str) -> str:
    """The expression with the node's pool; without that label if the pool is unknown or there is none."""
    return f"({expression}) {WITH_POOL}"


def set_label(expression: str, name: str, value: str) -> str:
    """The expression with one more label."""
    return f'label_replace({expression},"{name}","{value}","","")'
