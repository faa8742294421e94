"""Generates the page on every alert and every XID from the rules and the XID table.

The page is committed; ``python -m infra.alerts_docs docs/reference`` regenerates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from infra.config import parse
from infra.model.environment import Environment
from infra.model.xid import ASKS, CLASSES, XIDS
from infra.plan.rules.alerts import Alert, every

PAGE = "alerts.md"

_HEAD = """<!-- Made by `make docs` from the rules; a test compares. -->

# Alerts

Alerts are generated from the environment ([monitoring](../howto/monitoring.md)). Each has a runbook: what it
means, how to confirm it, what to do and not to do, when it ends. critical: work or a GPU is lost; warning:
work or a GPU will be lost, or money is; info: for information, does not page.

Rules read dcgm-exporter's and kube-state-metrics' metrics. If one of the two does not answer, an alert fires,
and alerts that need its metrics do not. `GpuQueueStalled` reads Kueue's. No rule needs DCGM's pod labels,
which shared GPUs do not have.

| alert | severity | for | meaning |
|---|---|---|---|"""

_XIDS = """
## XIDs

An XID is the number of a GPU error that NVIDIA's driver reports. The class says who acts:
"""

_TABLE = """
The [health loop](../explanation/health.md) acts on `reset` and `replace`. `source` says where the class is
from (catalogue: NVIDIA's XID catalogue), `differs` which source disagrees. NVIDIA's device plugin ignores 13,
31, 43, 45, 68 and 109, and removes the GPU from allocatable for every other XID. The EKS node monitoring
agent has its own list of fatal XIDs. An unknown XID is reported (`GpuXidUnknown`) and causes no action.

| XID | class | meaning | source | differs |
|---|---|---|---|---|"""

_SERIES = """
## Recorded series

Alerts, dashboards, `gpuform report` and the health loop read these series; you can query them, too. GPUs are
fractions: a share of four is 0.25, a slice counts by its compute slices. Use of a shared GPU is divided among
its pods by their requests, as the metrics do not name the pod. GPUs allocated by claim have no requests.

| series | meaning |
|---|---|"""

SERIES = {
    "gpuform:node:info": "1 for each node of a pool",
    "gpuform:device:util_ratio": "utilisation of each MIG instance, or of each GPU without MIG, from 0 to 1",
    "gpuform:device:memory_used_bytes": "memory in use on each of these devices",
    "gpuform:device:memory_total_bytes": "memory of each of these devices",
    "gpuform:gpu:power_watts": "power draw of each GPU",
    "gpuform:gpu:energy_joules_total": "energy used by each GPU, a counter",
    "gpuform:gpu:temperature_celsius": "temperature of each GPU",
    "gpuform:pod:gpus_requested": "GPUs requested by each pod",
    "gpuform:pod:gpus_used": "GPUs used by each pod",
    "gpuform:namespace:gpus_requested": "GPUs requested in each namespace, by pool",
    "gpuform:namespace:gpus_used": "GPUs used in each namespace",
    "gpuform:namespace:gpus_idle": "GPUs requested and not used in each namespace",
    "gpuform:namespace:gpu_hours_requested_1h": "GPU-hours requested in the past hour",
    "gpuform:namespace:gpu_hours_used_1h": "GPU-hours used; time without metrics is neither used nor idle",
    "gpuform:namespace:gpu_hours_idle_1h": "GPU-hours requested and not used",
    "gpuform:pool:gpus_declared": "GPUs declared for the pool; if not declared, those of its current nodes",
    "gpuform:pool:gpus_allocatable": "GPUs allocatable on its nodes",
    "gpuform:pool:gpus_requested": "GPUs requested by pods on its nodes",
    "gpuform:pool:gpus_used": "GPUs in use, whichever pod uses them",
    "gpuform:pool:cost_per_hour": "USD per hour of the pool; no series if a price is unknown",
    "gpuform:resource:allocatable": "allocatable units of each node, by resource, with CPU and memory",
    "gpuform:resource:requested": "units requested by pods on the node",
    "gpuform:resource:limits": "limits of these pods",
    "gpuform:resource:free": "what an ordinary pod could still get; placeholders count as free",
    "gpuform:pod:units_pending": "units requested by each pending pod",
    "gpuform:pod:pending_reason": "the same, with the reason for which the pod is pending",
    "gpuform:nodepool:nodes_left": "nodes that each limit of an elastic pool still allows",
    "gpuform:fault:active": "1 for each fault of a GPU, with class and reason",
}
"""Recorded series for use by others; all other recorded series are intermediate results."""


def page() -> str:
    """The whole page in Markdown, the same bytes every time."""
    lines = [_HEAD, *_alerts(), _XIDS, *_classes(), _TABLE, *_xids(), _SERIES]
    return "\n".join([*lines, *(f"| `{name}` | {words} |" for name, words in SERIES.items())]) + "\n"


def listed() -> tuple[Alert, ...]:
    """Every alert; the set does not depend on the environment."""
    return every(_any())


def _any() -> Environment:
    pool = {"name": "p", "machine": "g4.p1.40g", "nodes": 1}
    return parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool]})


def _alerts() -> Iterator[str]:
    for alert in listed():
        name = f"[{alert.name}](../runbooks/{alert.name}.md)"
        yield f"| {name} | {alert.severity} | {alert.wait or 'at once'} | {alert.means} |"


def _classes() -> Iterator[str]:
    for kind in CLASSES:
        yield f"- `{kind}`: {ASKS[kind]}."


def _xids() -> Iterator[str]:
    for row in XIDS.values():
        yield f"| {row.number} | {row.kind} | {row.meaning} | {row.source} | {row.differs} |"


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), encoding="utf-8")
