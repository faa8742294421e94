"""Building blocks of expressions: DCGM's series as they come, and what hangs on a node's pool.

Nothing here needs a label that an exporter may leave out: a series of DCGM counts where it names its GPU, and
where the scrape names the node. Of a GPU that is cut an exporter repeats everything with each instance, so an
expression touches a fleet's series as few times as it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from infra.model.labels import DRIVER_UPGRADE_STATE, INSTANCE_GPU_COUNT, MIG_CONFIG_STATE, POOL

Rule = dict[str, Any]

GPU = ("node", "gpu", "UUID", "modelName")
DEVICE = (*GPU, "GPU_I_ID", "GPU_I_PROFILE")
"""What a device is known by: a GPU that is not cut has no instance id and no profile."""

NODE_INFO = "gpuform:node:info"
NODE_KNOWN = "gpuform:node:known"
"""Also nodes whose GPUs are seen and whose pool is not known; those have no label pool."""
NODE_LABELS = (POOL, INSTANCE_GPU_COUNT, DRIVER_UPGRADE_STATE, MIG_CONFIG_STATE)
"""Node labels that kube-state-metrics must be let to show (its metric-labels-allowlist)."""
RANGE = "5m"
"""How far back rates look: at a scrape every 30 seconds a restart of the exporter does not empty it."""


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
    """The label that kube-state-metrics makes of a node's label, or the value that it makes of a resource."""
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in name)


def one_of(values: Iterable[str]) -> str:
    """A regular expression that matches each of the values and no other."""
    return "|".join(values)


def dcgm(name: str, matchers: str = "", over: str = "", window: str = RANGE) -> str:
    """Samples of one of DCGM's metrics that say of which GPU of which node; ``over`` a range, if named."""
    more = f",{matchers}" if matchers else ""
    found = f'{name}{{gpu!="",node!=""{more}}}'
    return f"{over}({found}[{window}])" if over else found


def most(keys: Iterable[str], expression: str) -> str:
    """One value for each combination of labels, whichever exporter, pod or container it came from."""
    return f"max by ({','.join(keys)}) ({expression})"


def with_pool(expression: str) -> str:
    """The same with the node's pool; without one where the node has none, or nobody knows it just now."""
    return f"({expression}) * on (node) group_left (pool) {NODE_KNOWN}"


def set_label(expression: str, name: str, value: str) -> str:
    """The same with one label more."""
    return f'label_replace({expression},"{name}","{value}","","")'
