"""The pool of each node, and what each GPU or MIG instance does.

One series per MIG instance, or per GPU without MIG. DCGM repeats a GPU's power and temperature for each of
its instances; they are recorded once per GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from infra.model.clusters import ExistingCluster
from infra.model.environment import Environment
from infra.model.labels import POOL
from infra.plan.rules import gke
from infra.plan.rules.promql import (
    DEVICE,
    GPU,
    NODE_INFO,
    NODE_KNOWN,
    RANGE,
    Rule,
    dcgm,
    label,
    most,
    record,
    with_pool,
)

UTILISATION = "gpuform:device:util_ratio"
MEMORY_USED = "gpuform:device:memory_used_bytes"
MEMORY_TOTAL = "gpuform:device:memory_total_bytes"
POWER = "gpuform:gpu:power_watts"
ENERGY = "gpuform:gpu:energy_joules_total"
TEMPERATURE = "gpuform:gpu:temperature_celsius"
_MIB = f" * {1024 * 1024}"
"""DCGM counts memory in MiB."""
REMAPPED = "gpuform:gpu:rows_remapped_total"
"""Recorded, so that the range of an hour is read per GPU and not per MIG instance."""
_WHOLE, _CUT = 'GPU_I_ID=""', 'GPU_I_ID!=""'


def node_info() -> Rule:
    """The pool of each node; while kube-state-metrics is silent, the last known one for five minutes.

    A node that changed its pool in that time gets only one of the two: with both, every rule with a pool
    fails, for every node.
    """
    name = f"label_{label(POOL)}"
    series = f'kube_node_labels{{{name}!="",node!=""}}'
    now, before = (
        most(("node", "pool"), f'label_replace({one},"pool","$1","{name}","(.+)")')
        for one in (series, f"last_over_time({series}[{RANGE}])")
    )
    return record(NODE_INFO, f"{now} or (topk by (node) (1,{before}) unless on () max(kube_node_labels))")


def rules(env: Environment) -> Iterator[Rule]:
    """Recording rules of devices and GPUs."""
    on_gke = isinstance(env.cluster, ExistingCluster)
    seen = f"group by (node) ({dcgm('DCGM_FI_DEV_GPU_TEMP')})"
    seen += f" or group by (node) ({gke.memory_total()})" if on_gke else ""
    yield record(NODE_KNOWN, f"{NODE_INFO} or on (node) ({seen})")
    for name, own, theirs in (
        (UTILISATION, _utilisation(), gke.utilisation()),
        (MEMORY_USED, _leaves(_samples("DCGM_FI_DEV_FB_USED", _MIB)), gke.memory_used()),
    ):
        expression = f"({own}) or on (node,gpu) ({theirs})" if on_gke else own
        yield record(name, with_pool(expression))
    theirs = f" or on (node,gpu) ({with_pool(gke.memory_total())})" if on_gke else ""
    yield record(MEMORY_TOTAL, _memory_total() + theirs)
    for name, metric, factor in (
        (POWER, "DCGM_FI_DEV_POWER_USAGE", ""),
        (ENERGY, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", " / 1000"),  # DCGM counts millijoules
        (TEMPERATURE, "DCGM_FI_DEV_GPU_TEMP", ""),
        (REMAPPED, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", ""),
    ):
        yield record(name, with_pool(most(GPU, dcgm(metric)) + factor))


def _utilisation() -> str:
    """Engine activity, which MIG instances have too; else the share of time in which any kernel ran."""
    active = _samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "")
    ran = f"{most(DEVICE, dcgm('DCGM_FI_DEV_GPU_UTIL', _WHOLE))} / 100"
    return _leaves(lambda matcher: active(matcher) if matcher == _CUT else f"{active(matcher)} or {ran}")


def _memory_total() -> str:
    """Used, free and reserved memory add up; not every exporter has the reserved part (the driver's)."""
    on, free = "node,gpu,GPU_I_ID", "DCGM_FI_DEV_FB_FREE"
    parts = dcgm("", f'__name__=~"{free}|DCGM_FI_DEV_FB_RESERVED"')
    rest = f"sum by ({on}) (max by (__name__,{on}) ({parts}))"
    return f"{MEMORY_USED} + on ({on}) group_left () ({rest}{_MIB} and on ({on}) {dcgm(free)})"


def _leaves(of: Callable[[str], str]) -> str:
    """MIG instances, and GPUs without any; an exporter may also report a GPU with MIG as a whole."""
    return f"({of(_CUT)}) or on (node,gpu) ({of(_WHOLE)})"


def _samples(metric: str, factor: str) -> Callable[[str], str]:
    return lambda matcher: most(DEVICE, dcgm(metric, matcher)) + factor
