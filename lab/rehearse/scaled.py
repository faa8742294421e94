"""Scaled workloads in a rehearsal with ``--qps``: which counter is played, and what is created."""

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
from gpuform.engine.places import Tools
from infra.model import labels, workload_kinds
from infra.model.environment import Environment
from infra.model.monitoring import RELEASE
from infra.model.serving import Scale
from infra.model.workload import InferenceWorkload
from infra.plan import scaling, workloads
from lab.offline.charts import Charts
from lab.rehearse import pods
from lab.rehearse.exporter import GATEWAY, Key, Series
from lab.rehearse.stack_file import INTERVAL
from lab.sidecars.monitoring.scraping import seconds
from lab.sidecars.monitoring.targets import PLAYED

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


def parsed(text: str) -> tuple[float, ...]:
    """``0,50,400``: requests per second, one after another. Raises InputError."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = (math.nan,)
    if not all(0 <= rate <= MOST_QPS for rate in found):
        remedy = f"as in 0,50,400, each from 0 to {MOST_QPS:.0f}"
        raise InputError(f"--qps {text}", "is not a list of requests per second", remedy)
    if len(found) > MOST_LOADS:
        raise InputError("--qps", f"has {len(found)} loads", f"give {MOST_LOADS} or fewer")
    return found


@dataclass(frozen=True)
class Scaled:
    """A scaled workload, and the counter that its query asks for; ``window_s`` is that of its rate."""

    work: InferenceWorkload
    scale: Scale
    series: Series
    window_s: float

    @property
    def key(self) -> Key:
        return self.work.namespace, self.work.name

    def wanted(self, qps: float) -> int:
        """Pods for this load, by the declaration alone."""
        needed = math.ceil(round(qps / self.scale.qps_per_replica, 9))
        return max(self.scale.min, min(self.scale.max, needed))


def followers(env: Environment) -> tuple[Scaled, ...]:
    """The scaled workloads. Raises InputError if there is none, or one that no load can be played for."""
    made = []
    for index, work in enumerate(env.workloads):
        if not isinstance(work, InferenceWorkload) or not work.scale:
            continue
        match = _QUERY.fullmatch(work.scale.query or scaling.requests(env, work))
        if not match:
            fact = 'is not sum(rate(NAME{label="value"}[1m])), and --qps plays such a counter'
            raise InputError(f"workloads[{index}].scale.query", fact, "leave --qps out, or write it so")
        has = dict(_LABEL.findall(match[2] or ""))
        by_pods = work.measured is not None and has.get("job") == f"{work.namespace}/{work.name}"
        own = {key: value for key, value in has.items() if not (by_pods and key == "job")}
        made.append(Scaled(work, work.scale, Series(match[1], own, by_pods), seconds(match[3])))
    if not made:
        fact = "no workload of the rehearsal has scale, so none follows requests"
        raise InputError("--qps", fact, "leave it out, or give an inference workload a scale")
    if any(env.by_autoscaler(pool) for pool in env.pools):
        fact = "cluster-autoscaler does not run in a rehearsal, so no node group follows requests"
        raise InputError("--qps", fact, "leave it out: then each scaled workload has its most pods")
    return tuple(made)


def shortened(env: Environment, scaled: tuple[Scaled, ...]) -> Iterator[str]:
    """What is not as declared, so that a rehearsal takes minutes."""
    assert env.monitoring is not None
    for one in scaled:
        if one.scale.cooldown_seconds > COOLDOWN_S:
            yield f"{one.work.name}'s cooldown is {COOLDOWN_S} s instead of {one.scale.cooldown_seconds} s"
    yield f"Prometheus scrapes every {INTERVAL} instead of {env.monitoring.interval}"


def fewest(env: Environment) -> Environment:
    """With the pods that each scaled workload has before anything scales it."""
    return workload_kinds.fixed(env, lambda work: max(1, work.scale.min) if work.scale else work.pods)


def at(env: Environment, qps: float, scaled: tuple[Scaled, ...]) -> Environment:
    """The scaled workloads alone, with the pods for this load."""
    number = {one.key: one.wanted(qps) for one in scaled}
    alone = env.model_copy(update={"workloads": tuple(one.work for one in scaled)})
    return workload_kinds.fixed(alone, lambda work: number[work.namespace, work.name])


def manifests(env: Environment, scaled: tuple[Scaled, ...], port: int) -> tuple[Manifest, ...]:
    """All workloads' objects but ScaledObjects, with the exporter's port; and the gateway, if it counts."""
    mine = {one.key: one for one in scaled}
    made = [one for one in pods.manifests(env) if one["kind"] != "ScaledObject"]
    for one in made:
        its = mine.get((one["metadata"].get("namespace"), one["metadata"]["name"]))
        if its and one["kind"] == "Deployment":
            one["spec"]["replicas"] = max(1, its.scale.min)
            one["spec"]["template"]["metadata"].setdefault("annotations", {})[PLAYED] = str(port)
    return (*made, *(() if all(one.series.by_pods for one in scaled) else _gateway(port)))


def _gateway(port: int) -> Iterator[Manifest]:
    """A Service of an address outside the cluster (RFC 5737), and what has Prometheus scrape it."""
    space, name = GATEWAY
    meta = {"name": name, "namespace": space, "labels": {labels.RELEASE: RELEASE, labels.APP_NAME: name}}
    noted, ports = {**meta, "annotations": {PLAYED: str(port)}}, [{"name": "metrics", "port": 80}]
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": ports}]
    endpoint = {"port": "metrics", "honorLabels": True}
    spec = {"selector": {"matchLabels": {labels.APP_NAME: name}}, "endpoints": [endpoint]}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": noted, "spec": {"ports": ports}}
    yield {"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": subsets}
    yield {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": meta, "spec": spec}


def scaled_objects(env: Environment, scaled: tuple[Scaled, ...]) -> Iterator[Manifest]:
    """What has KEDA scale the workloads, with at most ``COOLDOWN_S``."""
    for one in scaled:
        scale = one.scale.model_copy(update={"cooldown_seconds": min(one.scale.cooldown_seconds, COOLDOWN_S)})
        made = workloads.objects(env, one.work.model_copy(update={"scale": scale}))
        yield from (each for each in made if each["kind"] == "ScaledObject")


def install(env: Environment, own: Paths, root: Paths, tools: Tools) -> None:
    """KEDA, with the stack's values: the engine gets no workloads, and so installs none. Raises Failure."""
    release = scaling.release(env)
    assert release is not None
    chart = Charts(root.root, root.cache, own.state / "charts").folder(release.short, release.version or "")
    command = [str(tools.path("helm")), "--kubeconfig", str(own.kubeconfig), "install", release.name]
    command += [str(chart), "-n", release.namespace, "--create-namespace", "--wait", "-f", "-"]
    alone = {"HOME": str(own.state)}  # without the user's HELM_ variables and proxies
    done = subprocess.run(
        command, input=json.dumps(release.values), capture_output=True, text=True, env=alone
    )
    if done.returncode:
        raise Failure("KEDA", f"cannot be installed: {done.stderr.strip()[-500:]}", "run the rehearsal again")
