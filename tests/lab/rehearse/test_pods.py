"""Workloads as pods: what is created, what half of them is, and why one is pending."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage.nodes import Event, Pod
from gpuform.usage.rehearsal import Queued, Turn
from infra.config import parse
from infra.model.environment import Environment
from lab.rehearse import pods, queued
from lab.rehearse.cluster import Cluster
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.unit

KINDS: list[dict[str, Any]] = [
    {"name": "five", "kind": "deployment", "replicas": 5},
    {"name": "one", "kind": "deployment"},
    {"name": "job", "kind": "job", "parallelism": 4},
    {"name": "bare-a", "kind": "pod"},
    {"name": "bare-b", "kind": "pod"},
    {"name": "bare-c", "kind": "pod", "namespace": "other"},
]


def environment() -> Environment:
    work = [{"namespace": "lab", "image": "x:1", "pool": "p0", **one} for one in KINDS]
    return aws({"machine": "m6i.xlarge"}, workloads=work)


def pod(workload: str, name: str, **more: Any) -> Pod:
    return Pod("lab", name, workload, more.pop("node", ""), more.pop("phase", "Pending"), {}, **more)


def test_jobs_work_for_a_day_and_the_operators_namespace_is_the_programs() -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in pods.manifests(environment())}
    assert {name for kind, name in made if kind == "Namespace"} == {"lab", "other"}
    assert made["Job", "job"]["spec"]["template"]["metadata"]["annotations"] == {pods.DURATION: "24h"}
    assert "annotations" not in made["Deployment", "five"]["spec"]["template"]["metadata"]
    assert pods.wanted(environment()) == 13


class Recorded(Cluster):
    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def patch(self, path: str, body: Any) -> None:
        self.asked.append((path.rpartition("namespaces/")[2], body["spec"]))

    def delete(self, path: str) -> None:
        self.asked.append((path.rpartition("namespaces/")[2], None))


def test_half_of_each_go_rounded_up() -> None:
    cluster = Recorded()
    there = [Pod(space, name, name, "n", "Running", {})
             for space, name in (("lab", "bare-a"), ("lab", "bare-b"), ("other", "bare-c"))]  # fmt: skip
    pods.halve(cluster, environment(), there)
    assert cluster.asked == [
        ("lab/deployments/five", {"replicas": 2}),
        ("lab/deployments/one", {"replicas": 0}),
        ("lab/jobs/job", {"parallelism": 2}),
        ("lab/pods/bare-a", None),
        ("other/pods/bare-c", None),
    ]
    assert pods.wanted(pods.halved(environment())) == 2 + 0 + 2 + 1


def test_of_two_colours_the_live_one_is_halved() -> None:
    pool = {"name": "t4", "machine": "g2.5xlarge", "nodes": 4}
    work = {"name": "web", "kind": "deployment", "pool": "t4", "image": "x:1", "replicas": 4}
    coloured = {**work, "service": {"port": 80}, "update": {"kind": "blue_green"}}
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool], "workloads": [coloured]})
    cluster = Recorded()
    pods.halve(cluster, env, [])
    assert cluster.asked == [("default/deployments/web-blue", {"replicas": 2})]
    assert [one["kind"] for one in pods.manifests(env)] == ["Service", "Deployment"]


def test_each_pod_that_does_not_run_has_a_reason() -> None:
    there = [
        pod("five", "five-1", node="n", phase="Running"),
        pod("five", "five-2"),
        pod("five", "five-3"),
        pod(
            "five",
            "five-4",
            node="n",
            phase="Failed",
            trouble="UnexpectedAdmissionError: Pod was rejected: x",
        ),
        pod("five", "five-5", node="n"),
        pod("one", "one-1", node="n", phase="Succeeded"),
    ]
    at_limit = "Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool=p0)"
    said = [
        Event("Pod", "lab", "five-2", "karpenter", "FailedScheduling", at_limit),
        Event("Job", "lab", "job", "job-controller", "FailedCreate", "pods are forbidden: quota"),
        Event("Job", "lab", "job-2", "job-controller", "FailedCreate", "of another job"),
    ]
    found = {one.name: one for one in pods.pending(environment(), there, said)}
    assert {name: one.why for name, one in found.items()} == {
        "five-2": "Karpenter launches no node: NodePool p0 is at its limit",
        "five-3": "no event gives a reason yet",
        "five-4": "UnexpectedAdmissionError: Pod was rejected: x",
        "five-5": "it is scheduled to node n but does not start",
        "job": "4 of its pods were not created: pods are forbidden: quota",
        "bare-a": "1 of its pods was not created",
        "bare-b": "1 of its pods was not created",
        "bare-c": "1 of its pods was not created",
    }
    assert found["five-2"].said == (f"karpenter: {at_limit}",)


def test_what_a_queue_holds_back_has_the_reason_of_its_queue_alone() -> None:
    def in_queue(kind: str, name: str, *turns: Turn, waits: str = "no room") -> Queued:
        return Queued("q", "lab", kind, name, (Turn(1.0, "created"), *turns), waits)

    ended = (Turn(2.0, "admitted"), Turn(3.0, "evicted", "Preempted"))
    lives = [
        in_queue("Pod", "five-1"),
        in_queue("Job", "job"),
        in_queue("Pod", "bare-a", *ended, waits=""),
        in_queue("Pod", "bare-b", *ended, waits=""),
        in_queue("Pod", "bare-b", waits=""),  # created again, and admitted
    ]
    there = [pod("five", f"five-{n}", node="n" if n > 2 else "", phase="Running") for n in range(1, 6)]
    gates = Event("Pod", "lab", "five-1", "default-scheduler", "FailedScheduling", "non-empty gates")
    found = {one.name: one for one in pods.pending(environment(), there, [gates], queued.held(lives))}
    ended_by = "queue q ended it, and nothing creates it again: Preempted"
    assert {name: (one.why, one.said, one.queue) for name, one in found.items()} == {
        "five-1": ("waits in queue q: no room", (), "q"),
        "five-2": ("no event gives a reason yet", (), ""),
        "one": ("1 of its pods was not created", (), ""),
        "job": ("waits in queue q: no room", (), "q"),
        "bare-a": (ended_by, (), "q"),
        "bare-b": ("1 of its pods was not created", (), ""),
        "bare-c": ("1 of its pods was not created", (), ""),
    }


def test_pods_count_as_placed_if_they_were_at_any_time() -> None:
    runs = {"node": "n", "phase": "Running"}
    first = [pod("job", "a", **runs), pod("one", "b")]
    later = [pod("job", "a", node="n", phase="Succeeded"), *(pod("job", f"j{n}", **runs) for n in range(5))]
    assert pods.placed(environment(), first) == 1
    assert pods.placed(environment(), first, later) == 4, "those that follow in a job are not counted"


def test_a_pool_from_which_nothing_is_to_be_had_is_said_with_what_karpenter_says_of_it() -> None:
    other = "incompatible requirements, key gpuform.io/pool, gpuform.io/pool In [p0] not in [x]"
    said = [
        Event("Pod", "lab", "one-1", "karpenter", "FailedScheduling", f"Failed to schedule pod, {other}"),
        Event(
            "NodePool",
            "",
            "p0",
            "karpenter",
            "NoCompatibleInstanceTypes",
            "NodePool filtered out",
        ),
        Event("NodePool", "", "p1", "karpenter", "NoCompatibleInstanceTypes", "another's"),
    ]
    found = {one.name: one for one in pods.pending(environment(), [pod("one", "one-1")], said)}
    assert found["one-1"].why == "Karpenter launches no node: NodePool p0 has no available instance type"
    assert found["one-1"].said[-1] == "karpenter, of NodePool p0: NodePool filtered out"
