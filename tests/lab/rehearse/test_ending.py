"""Jobs of a rehearsal run to their end: which ones, and by which pods."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage.rehearsal import Ended
from infra.model.environment import Environment
from lab.rehearse import ending
from lab.rehearse.cluster import Cluster, Json
from lab.rehearse.watch import Watch
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.unit


def environment(**job: Any) -> Environment:
    work = {"name": "train", "namespace": "lab", "kind": "job", "pool": "p0", "image": "a:1", **job}
    other = {"name": "train", "kind": "deployment", "pool": "p0", "image": "a:1"}
    return aws({"machine": "m6i.xlarge"}, workloads=[work, other])


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        ([], True),
        (["sh", "-c", "train"], True),
        (["sleep", "90m"], True),
        (["sleep", "inf"], False),
        (["sleep", "infinity"], False),
    ],
)
def test_a_job_ends_unless_its_command_sleeps_for_ever(command: list[str], ends: bool) -> None:
    assert list(ending.ending(environment(command=command))) == [("lab", "train")] * ends


class Played(Cluster):
    """A Job with one pod at a time, which succeeds once its run time is cut short."""

    def __init__(self, env: str, refused: bool = False) -> None:
        self.env, self.refused = env, refused
        self.succeeded: list[str] = []
        self.names = iter(("train-0-a", "train-1-b", "train-2-c"))
        self.running = next(self.names)

    def items(self, path: str) -> list[Json]:
        own = {"gpuform.io/environment": self.env, "app.kubernetes.io/name": "train"}
        if path == ending.JOBS:
            there = {"name": "train", "namespace": "lab"}
            return [{"metadata": there, "status": {"succeeded": len(self.succeeded)}}]
        if path != "/api/v1/pods":
            return []
        phases = {**dict.fromkeys(self.succeeded, "Succeeded"), self.running: "Running"}
        return [
            {
                "metadata": {"name": name, "namespace": "lab", "labels": own},
                "spec": {"containers": [], "nodeName": "n"},
                "status": {"phase": phase},
            }
            for name, phase in phases.items()
        ]

    def patch(self, path: str, body: Any) -> None:
        assert body == {"metadata": {"annotations": {"simulator.gpuform.io/duration": "1s"}}}
        assert path == f"/api/v1/namespaces/lab/pods/{self.running}"
        if not self.refused:
            self.succeeded.append(self.running)
            self.running = next(self.names)


def test_pods_that_follow_end_as_well() -> None:
    env = environment(completions=2)
    cluster = Played(env.name)
    watch = Watch(cluster, env.name)
    with watch.running():
        assert ending.end(env, cluster, watch, 20, 20) == (Ended("lab", "train", 2, 2),)
    assert cluster.succeeded == ["train-0-a", "train-1-b"]
    left = ending.without(env, (Ended("lab", "train", 2, 2),)).workloads
    assert [(one.namespace, one.kind) for one in left] == [("default", "deployment")]


def test_a_job_that_does_not_complete_is_a_trouble() -> None:
    env = environment()
    cluster = Played(env.name, refused=True)
    watch = Watch(cluster, env.name)
    with watch.running():
        found = ending.end(env, cluster, watch, 0.8, 20)
    assert list(ending.troubles(found)) == ["job lab/train: 0 of 1 pods succeeded"]
