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
from infra.model import labels
from infra.plan import nodes, queues, room, workloads
from lab.toolchain import Toolchain
from tests.lab.plane.conftest import Own
from tests.lab.sidecars.controllers.kueue_site import API, Queues
from tests.waiting import until

Json = dict[str, Any]
TEAMS = [f"team-{number}" for number in range(30)]
COHORTS = 5
QUOTA, BORROW = 20, 100
GPUS_PER_NODE = 8
LIMIT_S = 400


@dataclass(frozen=True)
class Size:
    """A class of jobs: how many in each queue, pods of one GPU each, priority, and how long the pods work."""

    name: str
    jobs: int
    pods: int
    priority: int
    lasts: str


SIZES = (
    Size("small", 7, 1, 50, "200ms"),
    Size("medium", 2, 5, 100, "500ms"),
    Size("large", 1, 20, 200, "1s"),
)
ENV = parse(
    {
        "name": "bench",
        "cluster": {"kind": "embedded"},
        "pools": [
            {"name": "gpus", "machine": "p4d.24xlarge", "nodes": len(TEAMS) * QUOTA // GPUS_PER_NODE},
        ],
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


def ours() -> tuple[Json, list[Json], list[Json]]:
    """Values of the release, namespaces and Kueue's objects, and the Jobs, as planned."""
    release = queues.release(ENV)
    assert release is not None
    jobs = [one for one in workloads.manifests(ENV) if one["kind"] == "Job"]
    return release.values, [*room.namespaces(ENV), *queues.manifests(ENV)], jobs


def by_hand() -> tuple[Json, list[Json], list[Json]]:
    """The same for a user who follows Kueue's documentation."""
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}} for team in TEAMS]
    made.append(_kueue("ResourceFlavor", "default", {}))
    for number, team in enumerate(TEAMS):
        quota = {"name": labels.NVIDIA_GPU, "nominalQuota": QUOTA, "borrowingLimit": BORROW}
        group = {
            "coveredResources": [labels.NVIDIA_GPU],
            "flavors": [{"name": "default", "resources": [quota]}],
        }
        made.append(_kueue("LocalQueue", team, {"clusterQueue": team}, team))
        spec: Json = {"namespaceSelector": {}, "cohortName": f"cohort-{number % COHORTS}"}
        spec["preemption"] = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
        made.append(_kueue("ClusterQueue", team, spec | {"resourceGroups": [group]}))
    jobs = [_job(team, f"{size.name}-{number}", size)
            for team in TEAMS for size in SIZES for number in range(size.jobs)]  # fmt: skip
    return {}, made, jobs


def _kueue(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def _job(team: str, name: str, size: Size) -> Json:
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


def run(made: Callable[[], tuple[Json, list[Json], list[Json]]], folder: Path) -> dict[str, float]:
    """Seconds until the last Job has ended, and mean seconds until a Job of each class was admitted."""
    values, objects, jobs = made()
    cluster = Own(folder, Toolchain(Paths.here()))
    try:
        cluster.plane.controlled("kueue")
        site = Queues(cluster)
        site.apply(*nodes.simulated_nodes(ENV, ENV.pools[0]), *room.priority_classes(ENV))
        site.node("cpu-0")
        site.operator()
        (folder / "values.yaml").write_text(yaml.safe_dump(values))
        site.install("-f", str(folder / "values.yaml"))
        until(lambda: _offered(site), lambda gpus: gpus == len(TEAMS) * QUOTA, LIMIT_S)
        last = [one for one in objects if one["kind"] == "ClusterQueue"]
        site.apply(*(one for one in objects if one not in last))
        lasts = {size.name: size.lasts for size in SIZES}
        for job in jobs:
            notes = {"simulator.gpuform.io/duration": lasts[job["metadata"]["name"].partition("-")[0]]}
            job["spec"]["template"].setdefault("metadata", {}).setdefault("annotations", {}).update(notes)
        site.apply(*jobs)
        until(lambda: len(_workloads(site)), lambda found: found == len(jobs), LIMIT_S)
        began, wall = time.monotonic(), time.time()
        site.apply(*last)
        until(lambda: _left(site), lambda left: left == 0, LIMIT_S)
        return {"all ended, s": time.monotonic() - began} | _admitted(site, wall)
    finally:
        cluster.plane.stop(delete=True)


def _offered(site: Queues) -> int:
    path = rf"jsonpath={{.items[*].status.allocatable.{labels.NVIDIA_GPU.replace('.', chr(92) + '.')}}}"
    return sum(int(count) for count in site.kubectl("get", "nodes", "-o", path).split())


def _workloads(site: Queues) -> list[Json]:
    found: list[Json] = json.loads(site.kubectl("get", "workloads.kueue.x-k8s.io", "-A", "-o", "json"))[
        "items"
    ]
    return found


def _conditions(workload: Json) -> dict[str, Json]:
    return {one["type"]: one for one in workload.get("status", {}).get("conditions", [])}


def _left(site: Queues) -> int:
    return sum("Finished" not in _conditions(one) for one in _workloads(site))


def _admitted(site: Queues, began: float) -> dict[str, float]:
    taken: dict[str, list[float]] = {size.name: [] for size in SIZES}
    ends: Counter[str] = Counter()
    for one in _workloads(site):
        told = _conditions(one)
        ends[told["Finished"]["reason"]] += 1
        size = one["metadata"]["ownerReferences"][0]["name"].partition("-")[0]
        taken[size].append(datetime.fromisoformat(told["Admitted"]["lastTransitionTime"]).timestamp() - began)
    assert set(ends) == {"Succeeded"}, f"not all have succeeded: {ends}"
    return {f"{size} admitted, s": statistics.mean(times) for size, times in taken.items()}


def main(runs: int) -> None:
    taken: dict[str, list[dict[str, float]]] = {"ours": [], "by hand": []}
    for number in range(runs):
        ways: Sequence[tuple[str, Any]] = (("ours", ours), ("by hand", by_hand))
        for name, made in ways if number % 2 else reversed(ways):
            with tempfile.TemporaryDirectory() as folder:
                taken[name].append(run(made, Path(folder)))
            print(name, {key: round(value, 1) for key, value in taken[name][-1].items()}, flush=True)
    jobs = len(ENV.workloads)
    print(f"{jobs} jobs, {len(TEAMS)} queues; medians of {runs} runs: ours, by hand, ours / by hand")
    for figure in taken["ours"][0]:
        mine, theirs = (statistics.median(one[figure] for one in taken[name]) for name in taken)
        print(f"{figure:20} {mine:8.1f} {theirs:8.1f} {mine / theirs:6.2f}x")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
