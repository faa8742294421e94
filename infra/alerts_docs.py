"""Generates the page on every alert and every XID from the rules and the XID table.

The page is committed; ``python -m infra.alerts_docs docs`` regenerates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from infra.config import parse
from infra.model.environment import Environment
from infra.model.xid import ASKS, CLASSES, XIDS
from infra.plan.rules.alert import Alert
from infra.plan.rules.alerts import every

PAGE = "alerts.md"

_HEAD = """<!-- Made by `python -m infra.alerts_docs docs` from the rules; a test compares. -->

# Alerts

Every alert is made from the environment, and has a runbook: what it means, how to see whether it is so, what
to do, what not to do, and when it ends. critical: work or a GPU is lost; warning: it will be, or money is;
info: worth knowing, nobody is called.

Rules read the measurements of dcgm-exporter and of kube-state-metrics. Where one of them does not answer, an
alert says so, and the others that need it are silent rather than wrong. No rule needs the pod labels of
DCGM's measurements, which are missing for GPUs that are shared.

| alert | severity | for | meaning |
|---|---|---|---|"""

_XIDS = """
## XIDs

An XID is the number under which NVIDIA's driver reports an error of a GPU. The class says who acts:
"""

_TABLE = """
The class is that of NVIDIA's XID catalogue, unless the source says otherwise; the last column says who sees
it differently. NVIDIA's device plugin does not count 13, 31, 43, 45, 68 and 109 against a GPU, and takes
one out of allocatable for every other XID. The EKS node monitoring agent has a list of its own of what is
fatal. An XID that is not here is reported as unknown (`GpuXidUnknown`), and nothing is done because of it.

| XID | class | meaning | source | who differs |
|---|---|---|---|---|"""

_SERIES = """
## Recorded series

What the alerts, the dashboards, `gpuform report` and the health loop read, and you may. GPUs are counted in
parts: a share of four is 0.25, a slice counts by its compute slices. Use of a shared GPU is divided among
its pods by what they asked for, for nobody tells whose it is. GPUs that are had by claim have no requests
here.

| series | what it is |
|---|---|"""

SERIES = {
    "gpuform:node:info": "1 for each node of a pool",
    "gpuform:device:util_ratio": "how busy each GPU that is not cut, or each MIG instance, is, from 0 to 1",
    "gpuform:device:memory_used_bytes": "memory in use on it",
    "gpuform:device:memory_total_bytes": "memory that it has",
    "gpuform:gpu:power_watts": "power that each card draws",
    "gpuform:gpu:energy_joules_total": "energy that it has used, a counter",
    "gpuform:gpu:temperature_celsius": "how hot it is",
    "gpuform:pod:gpus_requested": "GPUs that each pod asked for",
    "gpuform:pod:gpus_used": "GPUs that it keeps busy",
    "gpuform:namespace:gpus_requested": "GPUs asked for in each namespace, by pool",
    "gpuform:namespace:gpus_used": "GPUs that its pods keep busy",
    "gpuform:namespace:gpus_idle": "GPUs that its pods hold and do not use",
    "gpuform:namespace:gpu_hours_requested_1h": "GPU-hours asked for in the past hour",
    "gpuform:namespace:gpu_hours_used_1h": "GPU-hours used; time without measurements is in neither",
    "gpuform:namespace:gpu_hours_idle_1h": "GPU-hours held and not used",
    "gpuform:pool:gpus_declared": "GPUs that the pool has; where nodes come and go, of those there",
    "gpuform:pool:gpus_allocatable": "GPUs that its nodes offer",
    "gpuform:pool:gpus_requested": "GPUs that pods there asked for",
    "gpuform:pool:gpus_used": "GPUs that are busy, whoever's they are",
    "gpuform:pool:cost_per_hour": "USD per hour of the pool; none where a price is unknown",
    "gpuform:resource:allocatable": "what each node offers, by resource, cpu and memory too",
    "gpuform:resource:requested": "what pods on it ask for",
    "gpuform:resource:limits": "what they may use",
    "gpuform:resource:free": "what an ordinary pod could have; placeholders give way",
    "gpuform:pod:units_pending": "what each waiting pod asks for",
    "gpuform:pod:pending_reason": "the same, with the reason",
    "gpuform:nodepool:nodes_left": "nodes that each limit of an elastic pool still lets it get",
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
        name = f"[{alert.name}](runbooks/{alert.name}.md)"
        yield f"| {name} | {alert.severity} | {alert.wait or 'at once'} | {alert.means} |"


def _classes() -> Iterator[str]:
    for kind in CLASSES:
        yield f"- `{kind}`: {ASKS[kind]}."


def _xids() -> Iterator[str]:
    for row in XIDS.values():
        yield f"| {row.number} | {row.kind} | {row.meaning} | {row.source} | {row.differs} |"


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), encoding="utf-8")
