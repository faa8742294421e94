"""Made-up metrics of a whole environment, and a real Prometheus with its rules that scrapes them.

Every pool has its nodes (an elastic one has one), every node its GPUs or slices and one pod for each
resource. One GPU has XID 79, one pod is pending, one node is cordoned, one exporter is silent. Queries
find results here, but values do not move as on real GPUs (the simulator's do).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml

from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.plan import scraping
from infra.plan.rules import groups
from infra.plan.rules.promql import label
from tests.plan.rules.scraped import Prometheus, Sample, exposition, job, serving
from tests.waiting import until

SICK, SILENT = 0, 1
"""Indexes of the GPU node with a fault, and of the GPU node with a silent exporter."""


class SyntheticMetrics:
    def __init__(self, env: Environment) -> None:
        self.env = env
        self._began = time.time() - 7200
        self.nodes = [
            (f"{pool.name}-{number}", pool) for pool in env.pools for number in range(pool.nodes or 1)
        ]
        self.exporters = [name for name, pool in self.nodes if pool.gpus]

    def page(self, path: str) -> str | None:
        """The state, or what a node's exporter reports."""
        if path == "state":
            return self._state()
        silent = path == self.exporters[SILENT]
        return None if silent else exposition(self._devices(path, dict(self.nodes)[path]))

    def _devices(self, node: str, pool: Pool) -> Iterator[Sample]:
        for gpu in range(pool.gpu_counts[0]):
            card = {
                "gpu": str(gpu),
                "UUID": f"GPU-{node}-{gpu}",
                "modelName": pool.gpus[0].name,
                "Hostname": node,
            }
            slices = [profile for profile, count in pool.slices(1).items() for _ in range(count)]
            cut = [{"GPU_I_ID": str(i), "GPU_I_PROFILE": item} for i, item in enumerate(slices)] or [{}]
            for instance in cut:
                device = {**card, **instance}
                for name, field in scraping.fields(self.env).items():
                    if name.startswith("DCGM_FI") and field.type != "label":
                        yield name, device, self._value(name, field.type)
                window = {**device, "window_size_in_ms": "300000"}
                yield "DCGM_EXP_CLOCK_EVENTS_COUNT", {**window, "clock_event": "gpu_idle"}, 3
                sick = {"xid": "79"} if node == self.exporters[SICK] else {}
                yield "DCGM_EXP_XID_ERRORS_COUNT", {**window, **sick}, float(bool(sick))

    def _value(self, name: str, kind: str) -> float:
        """No errors; ratios below one; counters that grow."""
        if re.search("XID|ECC|REMAP|RETIRED|ERROR|REPLAY", name):
            return 0
        return (time.time() - self._began) * 1e6 if kind == "counter" else 0.4 if "PROF" in name else 40

    def _state(self) -> str:
        return exposition([*self._nodes(), *self._pods(), *self._limits(), *self._serving()])

    def _nodes(self) -> Iterator[Sample]:
        for name, pool in self.nodes:
            node = {"node": name}
            shown = {f"label_{label(labels.POOL)}": pool.name}
            if pool.cuts:
                shown["label_nvidia_com_mig_config"] = "all-of-it"
                shown["label_nvidia_com_mig_config_state"] = "success"
            if len(pool.gpu_counts) > 1:
                shown[f"label_{label(labels.INSTANCE_GPU_COUNT)}"] = str(pool.gpu_counts[0])
            yield "kube_node_labels", {**node, **shown}, 1
            yield "kube_node_info", node, 1
            yield "kube_node_status_condition", {**node, "condition": "Ready", "status": "true"}, 1
            for resource, count in {**self._offered(pool), "cpu": 32, "memory": 2**36}.items():
                yield "kube_node_status_allocatable", {**node, "resource": label(resource)}, count
        sick = {"key": "gpuform.io/gpu-unhealthy", "value": "replace", "effect": "NoSchedule"}
        yield "kube_node_spec_taint", {"node": self.exporters[SICK], **sick}, 1

    def _offered(self, pool: Pool) -> dict[str, int]:
        return dict(allocatable.resources(pool, pool.gpu_counts[0])) if pool.gpus else {}

    def _pods(self) -> Iterator[Sample]:
        for name, pool in self.nodes:
            for resource, count in self._offered(pool).items():
                if count:
                    pod = {
                        "namespace": "science",
                        "pod": f"{name}-{label(resource)}",
                        "uid": f"{name}-{resource}",
                    }
                    yield from _pod(pod, name, {resource: 1, "cpu": 4, "memory": 2**33}, "Running")
        waits = {"namespace": "science", "pod": "waits", "uid": "waits"}
        offered = next(self._offered(pool) for _, pool in self.nodes if pool.gpus)
        resource = next(name for name, count in offered.items() if count)
        yield from _pod(waits, "", {resource: 1000}, "Pending")
        yield "kube_pod_status_unschedulable", waits, 1

    def _serving(self) -> Iterator[Sample]:
        """A queue that admits, and a pod of a scaled model on the first GPU node."""
        age = time.time() - self._began
        for most in ("1", "+Inf"):
            yield "kueue_admission_wait_time_seconds_bucket", {"cluster_queue": "arts", "le": most}, age
        pod = {"namespace": "science", "pod": "web-5d9c7b6f4d-abcde", "uid": "web"}
        pool = dict(self.nodes)[self.exporters[0]]
        asked = next(name for name, count in self._offered(pool).items() if count)
        yield from _pod(pod, self.exporters[0], {asked: 1}, "Running")
        yield "kube_pod_created", pod, self._began
        yield "kube_pod_status_ready_time", pod, self._began + 60
        yield "nv_inference_request_success", {"job": "science/web", "pod": pod["pod"]}, age * 100

    def _limits(self) -> Iterator[Sample]:
        for kind, value in (("hard", 8), ("used", 3)):
            quota = {"namespace": "science", "resourcequota": "gpus", "resource": "requests.nvidia.com/gpu"}
            yield "kube_resourcequota", {**quota, "type": kind}, value
        for pool in self.env.pools:
            for name in pool.node_pools if pool.by_karpenter else ():
                for kind in ("cpu", "nvidia_com_gpu", "nvidia_com_gpu_shared"):
                    of = {"nodepool": name, "resource_type": kind}
                    yield "karpenter_nodepools_limit", of, 640
                    yield "karpenter_nodepools_usage", of, 128


def _pod(pod: dict[str, str], node: str, asks: dict[str, int], phase: str) -> Iterator[Sample]:
    yield "kube_pod_status_phase", {**pod, "phase": phase}, 1
    for resource, count in asks.items():
        of = {**pod, "node": node, "container": "main", "resource": label(resource)}
        for kind in ("requests", "limits"):
            yield f"kube_pod_container_resource_{kind}", of, count


Series = list[dict[str, Any]]
Ask = Callable[[str], Series]


@contextmanager
def running(binary: Path, folder: Path, metrics: SyntheticMetrics) -> Iterator[Ask]:
    """Yield a query function, after the rules have recorded what rates need: two scrapes."""
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": _fast_rules(metrics)}), encoding="utf-8")
    with serving(metrics.page) as source:
        jobs = [
            job(f"of-{node}", [(node, {"job": "nvidia-dcgm-exporter", "node": node})], source)
            for node in metrics.exporters
        ]
        jobs.append(job("state", [("state", {})], source))
        with closing(Prometheus(binary, folder / "own", jobs, [rules], seconds=1)) as prometheus:
            recorded = "count_over_time(gpuform:gpu:energy_joules_total[1m]) > 2"
            until(lambda: prometheus.query(recorded), seconds=60, what=(folder / "own/log").read_text)
            yield prometheus.query


def _fast_rules(metrics: SyntheticMetrics) -> list[dict[str, Any]]:
    """The rules, evaluated every second, and alerts without ``for``."""
    return [
        {
            "name": group["name"],
            "rules": [{key: value for key, value in rule.items() if key != "for"} for rule in group["rules"]],
        }
        for group in groups(metrics.env)
    ]
