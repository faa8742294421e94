"""Jobs run to their end: once all pods are placed, the run time of their pods is cut short."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuform.usage import queues
from gpuform.usage.rehearsal import Ended
from infra.model.environment import Environment
from infra.model.workload import JobWorkload
from lab.rehearse import pods, queued
from lab.rehearse.cluster import Cluster
from lab.rehearse.watch import Snapshot, Watch

JOBS = "/apis/batch/v1/jobs"
_TIME = re.compile(r"[0-9.]+[smh]?")


def ending(env: Environment) -> dict[tuple[str, str], JobWorkload]:
    """The jobs that end, by namespace and name: all but those with a command such as ``sleep inf``."""
    jobs = [one for one in env.workloads if isinstance(one, JobWorkload)]
    return {
        (one.namespace, one.name): one
        for one in jobs
        if len(one.command) < 2 or one.command[0] != "sleep" or _TIME.fullmatch(one.command[1])
    }


def end(
    env: Environment, cluster: Cluster, watch: Watch, quiet_s: float, timeout_s: float
) -> tuple[Ended, ...]:
    """End the pods of these jobs, and those that follow them, until the jobs are complete.

    What waits in a queue may be admitted then. A job that still waits in the end is left out.
    """
    jobs = ending(env)
    told: set[str] = set()

    def seen() -> tuple[Ended, ...]:
        there = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in cluster.items(JOBS)}
        status = {key: there.get(key, {}).get("status", {}) for key in jobs}
        return tuple(Ended(*key, status[key].get("succeeded", 0), one.total) for key, one in jobs.items())

    def done(now: Snapshot) -> bool:
        for pod in now.workloads:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            if (pod.namespace, pod.workload) in jobs and pod.phase == "Running" and path not in told:
                told.add(path)
                cluster.patch(path, {"metadata": {"annotations": {pods.DURATION: "1s"}}})
        waits = any(queues.state(one) == "waits" for one in now.works)
        return (
            not waits and all(one.placed or one.over for one in now.workloads) and not any(troubles(seen()))
        )

    watch.until(done, quiet_s, timeout_s)
    held = queued.held(watch.queued.values())
    return tuple(one for one in seen() if (one.namespace, one.name) not in held)


def without(env: Environment, ended: tuple[Ended, ...]) -> Environment:
    """The environment without these jobs."""
    over = {(one.namespace, one.name) for one in ended}
    left = tuple(one for one in env.workloads if (one.namespace, one.name) not in over)
    return env.model_copy(update={"workloads": left})


def troubles(ended: tuple[Ended, ...]) -> Iterator[str]:
    for one in ended:
        if one.succeeded < one.completions:
            yield f"job {one.namespace}/{one.name}: {one.succeeded} of {one.completions} pods succeeded"
