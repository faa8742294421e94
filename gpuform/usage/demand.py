"""What running pods need of their GPUs, for the planner: what they are guaranteed, and their peaks.

Throughput: the 99th percentile of GPUs used, from the recorded series, which attributes the load of shared
devices by request. Memory: the peak that DCGM saw; it names pods on whole GPUs and MIG instances only, so the
memory of pods that share a GPU stays as declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from gpuform.kubernetes.pods import by_controller
from gpuform.manifests.documents import Document
from gpuform.manifests.needs import needs
from gpuform.manifests.pods import FoundPod, find
from gpuform.usage.prometheus import Prometheus, Sample
from infra.model.environment import Environment
from infra.plan.rules.promql import POD_USED
from infra.planner.need import Need

_BUSY = "max by (namespace, pod) (quantile_over_time(0.99, {series}[{window}]))"
_MEMORY = 'max by (namespace, pod) (max_over_time(DCGM_FI_DEV_FB_USED{{pod!=""}}[{window}]))'
_LEAST = 0.01
"""Part of a GPU that an idle pod counts with."""


def running_needs(env: Environment, pods: Iterable[Mapping[str, Any]]) -> Iterator[Need | str]:
    """A need for the pods of each controller that run or wait, each as the first; or why it is left out."""
    return needs(env, _found(pods), "default")


def _found(pods: Iterable[Mapping[str, Any]]) -> Iterator[FoundPod]:
    """Of each controller its first pod, under the controller's name, with the number of its pods."""
    rest = (pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"))
    for controller, group in by_controller(rest).items():
        if controller.kind not in ("DaemonSet", "Node"):
            meta = {**group[0]["metadata"], "name": controller.name}
            pod = Document("", 0, yaml.MappingNode("", []), {**group[0], "kind": "Pod", "metadata": meta})
            yield from (replace(one, count=len(group)) for one in find(pod))


def with_measured(prometheus: Prometheus, needs: Sequence[Need], window: str) -> Iterator[tuple[Need, bool]]:
    """Each need with its pods' peaks of ``window`` (as 14d), and whether any of its pods was measured.

    Raises Failure if Prometheus does not answer.
    """
    busy = prometheus.query(_BUSY.format(series=POD_USED, window=window))
    memory = prometheus.query(_MEMORY.format(window=window))
    names = {need.name for need in needs}
    busiest, largest = (_peaks(samples, names) for samples in (busy, memory))
    for need in needs:
        load, mib = busiest.get(need.name), largest.get(need.name)
        if load is None and mib is None:
            yield need, False
            continue
        found = replace(need, pools=None)
        if load is not None and need.count == 1:
            found = replace(found, compute=min(1.0, max(_LEAST, load)))
        yield (replace(found, memory_mib=round(mib)) if mib else found), True


def _peaks(samples: Iterable[Sample], names: set[str]) -> dict[str, float]:
    """The largest value of each workload's pods, by NAMESPACE/NAME."""
    found: dict[str, float] = {}
    for sample in samples:
        name = _workload(f"{sample.labels.get('namespace', '')}/{sample.labels.get('pod', '')}", names)
        if name:
            found[name] = max(found.get(name, 0.0), sample.value)
    return found


def _workload(pod: str, names: set[str]) -> str:
    """The workload with the longest name of which a pod can have this name; empty if there is none."""
    while pod not in names:
        pod, dash, suffix = pod.rpartition("-")
        if not dash or not re.fullmatch("[a-z0-9]{1,10}", suffix):
            return ""
    return pod
