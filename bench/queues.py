"""Jobs admitted by the real Kueue: with the stack's values and objects, and with hand-written ones.

    python -m bench.queues [RUNS]

The shape is that of Kueue's own performance configuration (test/performance/scheduler/configs/baseline of
0.19.2: 5 cohorts of 6 queues, quota 20, borrowing limit 100, three classes of workloads, 500 in each queue),
scaled to two cores: 10 in each queue, real Jobs on simulated nodes with 600 GPUs instead of bare Workloads.
The peer is what a user writes by hand: the chart's own values, one flavor without labels, and plain Jobs.
All Jobs exist before the queues; seconds are counted from the first queue, in fresh clusters in turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.paths import Paths
from infra.config import parse
from infra.model.base import labels
from infra.plan import nodes, queues, quotas, workloads
from lab.toolchain import Toolchain
from tests.lab.plane.conftest import OwnControlPlane
from tests.lab.sidecars.controllers.conftest import API, Queues
from tests.waiting import until

Json = dict[str, Any]
TEAMS = [f"team-{number}" for number in range(30)]
COHORTS = 5
QUOTA, BORROW = 20, 100
GPUS_PER_NODE = 8
LIMIT_S = 400


@dataclass(frozen=True)
class JobClass:
    """A class of jobs: how many in each queue, pods of one GPU each, priority, and how long the pods work."""

    name: str
    jobs: int
    pods: int
    priority: int
    duration: str


SIZES = (
    JobClass("small", 7, 1, 50, "200ms"),
    JobClass("medium", 2, 5, 100, "500ms"),
    JobClass("large", 1, 20, 200, "1s"),
)
ENV = parse(
    {
        "name": "bench",
        "cluster": {"kind": "embedded"},
        "pools": [{"name": "gpus", "machine": "p4d.24xlarge", "nodes": len(TEAMS) * QUOTA // GPUS_PER_NODE}],
        "priorities": {size.name: size.priority for size in SIZES},
        "queues": {
            "teams": [
                {
                    "name": team,
                    "namespaces": [team],
                    "cohort": f"cohort-{number % COHORTS}",
                    "quota": {"gpus": QUOTA},
                    "borrow": {"gpus": BORROW},
                    "preempt": {"within": "lower_priority", "reclaim": "any"},
                }
                for number, team in enumerate(TEAMS)
            ]
        },
        "workloads": [
            {
                "name": f"{size.name}-{number}",
                "namespace": team,
                "queue": team,
                "kind": "job",
                "pool": "gpus",
                "parallelism": size.pods,
                "priority": size.name,
                "image": "registry.example/bench:1",
            }
            for team in TEAMS
            for size in SIZES
            for number in range(size.jobs)
        ],
    }
)


def planned_objects() -> tuple[Json, list[Json], list[Json]]:
    """Values of the release, namespaces and Kueue's objects, and the Jobs, as planned."""
    release = queues.release(ENV)
    assert release is not None
    jobs = [manifest for manifest in workloads.manifests(ENV) if manifest["kind"] == "Job"]
    return release.values, [*quotas.namespaces(ENV), *queues.manifests(ENV)], jobs


def handwritten_objects() -> tuple[Json, list[Json], list[Json]]:
    """The same for a user who follows Kueue's documentation."""
    objects = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}} for team in TEAMS]
    objects.append(_kueue("ResourceFlavor", "default", {}))
    for number, team in enumerate(TEAMS):
        quota = {"name": labels.NVIDIA_GPU, "nominalQuota": QUOTA, "borrowingLimit": BORROW}
        group = {
            "coveredResources": [labels.NVIDIA_GPU],
            "flavors": [{"name": "default", "resources": [quota]}],
        }
        objects.append(_kueue("LocalQueue", team, {"clusterQueue": team}, team))
        spec: Json = {"namespaceSelector": {}, "cohortName": f"cohort-{number % COHORTS}"}
        spec["preemption"] = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
        objects.append(_kueue("ClusterQueue", team, spec | {"resourceGroups": [group]}))
    jobs = [_job(team, f"{size.name}-{number}", size)
            for team in TEAMS for size in SIZES for number in range(size.jobs)]  # fmt: skip
    return {}, objects, jobs


def _kueue(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def _job(team: str, name: str, size: JobClass) -> Json:
    container: Json = {"name": "main", "image": "registry.example/bench:1"}
    container |= {"resources": {"limits": {labels.NVIDIA_GPU: "1"}}}
    pod: Json = {"containers": [container], "restartPolicy": "Never", "priorityClassName": size.name}
    pod["tolerations"] = [{"key": labels.NVIDIA_GPU, "operator": "Exists"}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": team, "labels": {labels.QUEUE: team}},
        "spec": {"parallelism": size.pods, "completions": size.pods, "template": {"spec": pod}},
    }


def run(build: Callable[[], tuple[Json, list[Json], list[Json]]], folder: Path) -> dict[str, float]:
    """Seconds until the last Job has ended, and mean seconds until a Job of each class was admitted."""
    values, objects, jobs = build()
    cluster = OwnControlPlane(folder, Toolchain(Paths.here()))
    try:
        cluster.plane.start_with_controllers("kueue")
        site = Queues(cluster)
        site.apply(*nodes.simulated_nodes(ENV, ENV.pools[0]), *quotas.priority_classes(ENV))
        site.node("cpu-0")
        site.operator()
        (folder / "values.yaml").write_text(yaml.safe_dump(values))
        site.install("-f", str(folder / "values.yaml"))
        until(lambda: _offered(site), lambda gpus: gpus == len(TEAMS) * QUOTA, LIMIT_S)
        cluster_queues = [item for item in objects if item["kind"] == "ClusterQueue"]
        site.apply(*(item for item in objects if item not in cluster_queues))
        lasts = {size.name: size.duration for size in SIZES}
        for job in jobs:
            annotations = {"simulator.gpuform.io/duration": lasts[job["metadata"]["name"].partition("-")[0]]}
            job["spec"]["template"].setdefault("metadata", {}).setdefault("annotations", {}).update(
                annotations
            )
        site.apply(*jobs)
        until(lambda: len(_workloads(site)), lambda count: count == len(jobs), LIMIT_S)
        began, wall = time.monotonic(), time.time()
        site.apply(*cluster_queues)
        until(lambda: _left(site), lambda left: left == 0, LIMIT_S)
        return {"all ended, s": time.monotonic() - began} | _admitted(site, wall)
    finally:
        cluster.plane.stop(delete=True)


def _offered(site: Queues) -> int:
    path = rf"jsonpath={{.items[*].status.allocatable.{labels.NVIDIA_GPU.replace('.', chr(92) + '.')}}}"
    return sum(int(count) for count in site.kubectl("get", "nodes", "-o", path).split())


def _workloads(site: Queues) -> list[Json]:
    items: list[Json] = json.loads(site.kubectl("get", "workloads.kueue.x-k8s.io", "-A", "-o", "json"))[
        "items"
    ]
    return items


def _conditions(workload: Json) -> dict[str, Json]:
    return {condition["type"]: condition for condition in workload.get("status", {}).get("conditions", [])}


def _left(site: Queues) -> int:
    return sum("Finished" not in _conditions(workload) for workload in _workloads(site))


def _admitted(site: Queues, began: float) -> dict[str, float]:
    seconds_by_size: dict[str, list[float]] = {size.name: [] for size in SIZES}
    ends: Counter[str] = Counter()
    for workload in _workloads(site):
        conditions = _conditions(workload)
        ends[conditions["Finished"]["reason"]] += 1
        size = workload["metadata"]["ownerReferences"][0]["name"].partition("-")[0]
        seconds_by_size[size].append(
            datetime.fromisoformat(conditions["Admitted"]["lastTransitionTime"]).timestamp() - began
        )
    assert set(ends) == {"Succeeded"}, f"not all have succeeded: {ends}"
    return {f"{size} admitted, s": statistics.mean(times) for size, times in seconds_by_size.items()}


def main(runs: int) -> None:
    results: dict[str, list[dict[str, float]]] = {"ours": [], "by hand": []}
    for number in range(runs):
        ways: Sequence[tuple[str, Any]] = (("ours", planned_objects), ("by hand", handwritten_objects))
        for name, build in ways if number % 2 else reversed(ways):
            with tempfile.TemporaryDirectory() as folder:
                results[name].append(run(build, Path(folder)))
            print(name, {key: round(value, 1) for key, value in results[name][-1].items()}, flush=True)
    jobs = len(ENV.workloads)
    print(f"{jobs} jobs, {len(TEAMS)} queues; medians of {runs} runs: ours, by hand, ours / by hand")
    for figure in results["ours"][0]:
        own_median, peer_median = (
            statistics.median(result[figure] for result in results[name]) for name in results
        )
        print(f"{figure:20} {own_median:8.1f} {peer_median:8.1f} {own_median / peer_median:6.2f}x")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
