"""Scaled workloads in a rehearsal with ``--qps``: which counter is simulated, and what is created."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.files import Tools
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.placement import fit
from infra.model.platform.monitoring import RELEASE
from infra.model.workload.serving import Scale
from infra.model.workload.workload import InferenceWorkload
from infra.plan import scaling, workloads
from lab.offline.charts import Charts
from lab.rehearse import pods
from lab.rehearse.exporter import GATEWAY, Key, Series
from lab.rehearse.stack_file import INTERVAL
from lab.sidecars.monitoring.scraping import seconds
from lab.sidecars.monitoring.targets import METRICS_PORT

MOST_LOADS, MOST_QPS = 20, 1e6
COOLDOWN_S = 10
"""Most ``cooldown_seconds`` in a rehearsal."""
_QUERY = re.compile(
    r"\s*sum\s*\(\s*rate\s*\(\s*([a-zA-Z_:][\w:]*)\s*"
    r'(?:\{((?:\s*\w+\s*=\s*"[^"\\]*"\s*,?)*)\})?\s*'
    r"\[((?:\d+(?:ms|[smhdwy]))+)\]\s*\)\s*\)(?:\s*or\s+vector\s*\(\s*0\s*\))?\s*"
)
_LABEL = re.compile(r'(\w+)\s*=\s*"([^"]*)"')

Manifest = dict[str, Any]


def parse_qps(text: str) -> tuple[float, ...]:
    """``0,50,400``: requests per second, one after another. Raises InputError."""
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = (math.nan,)
    if not all(0 <= rate <= MOST_QPS for rate in rates):
        remedy = f"as in 0,50,400, each from 0 to {MOST_QPS:.0f}"
        raise InputError(f"--qps {text}", "is not a list of requests per second", remedy)
    if len(rates) > MOST_LOADS:
        raise InputError("--qps", f"has {len(rates)} loads", f"give {MOST_LOADS} or fewer")
    return rates


@dataclass(frozen=True)
class ScaledWorkload:
    """A scaled workload, and the counter that its query asks for; ``window_s`` is that of its rate."""

    work: InferenceWorkload
    scale: Scale
    series: Series
    window_s: float

    @property
    def key(self) -> Key:
        return self.work.namespace, self.work.name

    def replicas_for(self, qps: float) -> int:
        """Pods for this load, by the declaration alone."""
        needed = math.ceil(round(qps / self.scale.qps_per_replica, 9))
        return max(self.scale.min, min(self.scale.max, needed))


def scaled_workloads(env: Environment) -> tuple[ScaledWorkload, ...]:
    """The scaled workloads. Raises InputError if there is none, or one that no load can be played for."""
    found = []
    for index, work in enumerate(env.workloads):
        if not isinstance(work, InferenceWorkload) or not work.scale:
            continue
        match = _QUERY.fullmatch(work.scale.query or scaling.request_rate(env, work))
        if not match:
            fact = 'is not sum(rate(NAME{label="value"}[1m])), and --qps plays such a counter'
            raise InputError(f"workloads[{index}].scale.query", fact, "leave --qps out, or write it so")
        own_labels, job = dict(_LABEL.findall(match[2] or "")), f"{work.namespace}/{work.name}"
        by_pods = work.pod_metrics is not None and own_labels.get("job") == job
        if by_pods:
            del own_labels["job"]
        series = Series(match[1], own_labels, by_pods)
        found.append(ScaledWorkload(work, work.scale, series, seconds(match[3])))
    if not found:
        fact = "no workload of the rehearsal has scale, so none follows requests"
        raise InputError("--qps", fact, "leave it out, or give an inference workload a scale")
    if any(pool.by_autoscaler for pool in env.pools):
        fact = "cluster-autoscaler does not run in a rehearsal, so no node group follows requests"
        raise InputError("--qps", fact, "leave it out: then each scaled workload has its most pods")
    return tuple(found)


def deviations(env: Environment, scaled: tuple[ScaledWorkload, ...]) -> Iterator[str]:
    """What is not as declared, so that a rehearsal takes minutes."""
    assert env.monitoring is not None
    for item in scaled:
        if item.scale.cooldown_seconds > COOLDOWN_S:
            yield f"{item.work.name}'s cooldown is {COOLDOWN_S} s instead of {item.scale.cooldown_seconds} s"
    yield f"Prometheus scrapes every {INTERVAL} instead of {env.monitoring.interval}"


def at_minimum(env: Environment) -> Environment:
    """With the pods that each scaled workload has before anything scales it."""
    return fit.with_pods(env, lambda work: max(1, work.scale.min) if work.scale else work.pods)


def at_load(env: Environment, qps: float, scaled: tuple[ScaledWorkload, ...]) -> Environment:
    """The scaled workloads alone, with the pods for this load."""
    replicas = {item.key: item.replicas_for(qps) for item in scaled}
    only_scaled = env.model_copy(update={"workloads": tuple(item.work for item in scaled)})
    return fit.with_pods(only_scaled, lambda work: replicas[work.namespace, work.name])


def manifests(env: Environment, scaled: tuple[ScaledWorkload, ...], port: int) -> tuple[Manifest, ...]:
    """All workloads' objects but ScaledObjects, with the exporter's port; and the gateway, if it counts."""
    by_key = {item.key: item for item in scaled}
    made = [manifest for manifest in pods.manifests(env) if manifest["kind"] != "ScaledObject"]
    for manifest in made:
        item = by_key.get((manifest["metadata"].get("namespace"), manifest["metadata"]["name"]))
        if item and manifest["kind"] == "Deployment":
            manifest["spec"]["replicas"] = max(1, item.scale.min)
            manifest["spec"]["template"]["metadata"].setdefault("annotations", {})[METRICS_PORT] = str(port)
    return (*made, *(() if all(item.series.by_pods for item in scaled) else _gateway(port)))


def _gateway(port: int) -> Iterator[Manifest]:
    """A Service of an address outside the cluster (RFC 5737), and what has Prometheus scrape it."""
    namespace, name = GATEWAY
    meta = {"name": name, "namespace": namespace, "labels": {labels.RELEASE: RELEASE, labels.APP_NAME: name}}
    annotated, ports = {**meta, "annotations": {METRICS_PORT: str(port)}}, [{"name": "metrics", "port": 80}]
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": ports}]
    endpoint = {"port": "metrics", "honorLabels": True}
    spec = {"selector": {"matchLabels": {labels.APP_NAME: name}}, "endpoints": [endpoint]}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": annotated, "spec": {"ports": ports}}
    yield {"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": subsets}
    yield {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": meta, "spec": spec}


def scaled_objects(env: Environment, scaled: tuple[ScaledWorkload, ...]) -> Iterator[Manifest]:
    """What has KEDA scale the workloads, with at most ``COOLDOWN_S``."""
    for item in scaled:
        cooldown = {"cooldown_seconds": min(item.scale.cooldown_seconds, COOLDOWN_S)}
        scale = item.scale.model_copy(update=cooldown)
        objects = workloads.objects(env, item.work.model_copy(update={"scale": scale}))
        yield from (manifest for manifest in objects if manifest["kind"] == "ScaledObject")


def install_keda(env: Environment, run_paths: Paths, checkout_paths: Paths, tools: Tools) -> None:
    """KEDA, with the stack's values: the engine gets no workloads, and so installs none. Raises Failure."""
    release = scaling.release(env)
    assert release is not None
    chart = Charts(checkout_paths.installation, checkout_paths.cache, run_paths.state / "charts").folder(
        release.short_name, release.version or ""
    )
    command = [str(tools.path("helm")), "--kubeconfig", str(run_paths.kubeconfig), "install", release.name]
    command += [str(chart), "-n", release.namespace, "--create-namespace", "--wait", "-f", "-"]
    variables = {"HOME": str(run_paths.state)}  # without the user's HELM_ variables and proxies
    result = subprocess.run(
        command, input=json.dumps(release.values), capture_output=True, text=True, env=variables
    )
    if result.returncode:
        fact = f"cannot be installed: {result.stderr.strip()[-500:]}"
        raise Failure("KEDA", fact, "run the rehearsal again")
