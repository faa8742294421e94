"""Workloads as pods: created, halved, ended; why one is pending, in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.usage.nodes import Pod
from gpuform.usage.queues import QueuedWorkload, Transition
from gpuform.usage.rehearsal import JobResult
from infra.model.environment import Environment
from lab.rehearse import after_placement, pods, watch
from lab.rehearse.cluster import NODES, PODS, Json
from lab.rehearse.node_source import CalculatedGroups
from lab.rehearse.reasons import Event, karpenter_reason, latest_events, scheduler_reason
from lab.rehearse.watch import Watch
from tests.build.aws_environments import aws
from tests.build.environments import on
from tests.lab.rehearse.fake_cluster import FakeCluster

pytestmark = pytest.mark.unit

KINDS: list[dict[str, Any]] = [
    {"name": "five", "kind": "deployment", "replicas": 5},
    {"name": "one", "kind": "deployment"},
    {"name": "job", "kind": "job", "parallelism": 4},
    {"name": "bare-a", "kind": "pod"},
    {"name": "bare-b", "kind": "pod"},
    {"name": "bare-c", "kind": "pod", "namespace": "other"},
]
WORK = [{"namespace": "lab", "image": "x:1", "pool": "p0", **kind} for kind in KINDS]
ENV = aws({"machine": "m6i.xlarge"}, workloads=WORK)
RUNS: dict[str, Any] = {"node": "n", "phase": "Running"}
ELASTIC = {"machine": "g2.5xlarge", "elastic": {"min": 1, "max": {"nodes": 3}}}


def pod(workload: str, name: str, node: str = "", phase: str = "Pending", **more: Any) -> Pod:
    return Pod("lab", name, workload, node, phase, {}, **more)


def event(name: str, source: str, message: str, reason: str = "FailedScheduling", kind: str = "Pod") -> Event:
    return Event(kind, "" if kind == "NodePool" else "lab", name, source, reason, message)


def group(replicas: int) -> Environment:
    """An elastic group that holds two of the pods on a node."""
    work = {"kind": "deployment", "namespace": "lab", "pool": "p0", "replicas": replicas}
    return on("openstack", ELASTIC, workloads=[work])


def test_jobs_run_for_a_day_and_the_operators_namespace_is_the_programs() -> None:
    made = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in pods.manifests(ENV)}
    assert {name for kind, name in made if kind == "Namespace"} == {"lab", "other"}
    assert made["Job", "job"]["spec"]["template"]["metadata"]["annotations"] == {pods.DURATION: "24h"}
    assert "annotations" not in made["Deployment", "five"]["spec"]["template"]["metadata"]
    assert pods.count_pods(ENV) == 13


def halved(env: Environment, *existing: Pod) -> list[tuple[str, Any]]:
    """What is asked for: the end of each path, and the changed fields."""
    cluster = FakeCluster()
    pods.halve(cluster, env, existing)
    return [(path.rpartition("namespaces/")[2], body and body["spec"]) for path, body in cluster.requests]


def test_half_of_each_workload_is_removed_rounded_up() -> None:
    bare = (("lab", "bare-a"), ("lab", "bare-b"), ("other", "bare-c"))
    assert halved(ENV, *(Pod(space, name, name, "n", "Running", {}) for space, name in bare)) == [
        ("lab/deployments/five", {"replicas": 2}),
        ("lab/deployments/one", {"replicas": 0}),
        ("lab/jobs/job", {"parallelism": 2}),
        ("lab/pods/bare-a", None),
        ("other/pods/bare-c", None),
    ]
    assert pods.count_pods(pods.halved(ENV)) == 2 + 0 + 2 + 1


def test_the_live_one_of_two_colours_is_halved() -> None:
    coloured = {
        "kind": "deployment",
        "replicas": 4,
        "service": {"port": 80},
        "update": {"kind": "blue_green"},
    }
    env = on("embedded", {"machine": "g2.5xlarge", "nodes": 4}, workloads=[{**coloured, "pool": "p0"}])
    assert halved(env) == [("default/deployments/w0-blue", {"replicas": 2})]
    assert [manifest["kind"] for manifest in pods.manifests(env)] == ["Service", "Deployment"]


def test_each_pod_that_does_not_run_has_a_reason() -> None:
    short = (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
    )
    at_limit = "Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool=p0)"
    other_pool = "incompatible requirements, key gpuform.io/pool, gpuform.io/pool In [p0] not in [x]"
    rejected = "UnexpectedAdmissionError: Pod was rejected: x"
    objects = [
        pod("five", "five-1", **RUNS),
        pod("five", "five-2"),
        pod("five", "five-3"),
        pod("five", "five-4", node="n", phase="Failed", trouble=rejected),
        pod("five", "five-5", node="n"),
        pod("five", "five-6", reason=f"Unschedulable: {short}"),
        pod("one", "one-1"),
    ]
    messages = [
        event("five-2", "default-scheduler", "no nodes available to schedule pods"),
        event("five-2", "default-scheduler", "0/1 nodes are available: 1 Insufficient cpu."),
        event("five-2", "karpenter", at_limit),
        event("five-2", "karpenter", "Pod should schedule on: nodeclaim/p-x", "Nominated"),
        event("five-6", "default-scheduler", "0/2 nodes are available: 2 node(s) had untolerated taint(s)."),
        event("one-1", "karpenter", f"Failed to schedule pod, {other_pool}"),
        event("job", "job-controller", "pods are forbidden: quota", "FailedCreate", "Job"),
        event("job-2", "job-controller", "of another job", "FailedCreate", "Job"),
        event("p0", "karpenter", "NodePool filtered out", "NoCompatibleInstanceTypes", "NodePool"),
        event("p1", "karpenter", "another's", "NoCompatibleInstanceTypes", "NodePool"),
    ]
    result = {item.name: item for item in pods.pending_pods(ENV, objects, messages)}
    assert {name: item.why for name, item in result.items()} == {
        "five-2": "0 of 1 nodes fit: 1 has insufficient cpu; "
        "Karpenter launches no node: NodePool p0 is at its limit",
        "five-3": "no event gives a reason yet",
        "five-4": rejected,
        "five-5": "it is scheduled to node n but does not start",
        "five-6": "0 of 2 nodes fit: 1 has insufficient cpu, 1 is not in its pool",
        "one-1": "Karpenter launches no node: NodePool p0 has no available instance type",
        "job": "4 of its pods were not created: pods are forbidden: quota",
        **{f"bare-{letter}": "1 of its pods was not created" for letter in "abc"},
    }
    assert result["five-2"].said[2] == f"karpenter: {at_limit}"
    assert result["five-6"].said[0] == f"default-scheduler: {short}", "an event keeps its first message"
    assert result["one-1"].said[-1] == "karpenter, of NodePool p0: NodePool filtered out"


def test_a_pod_that_a_queue_holds_back_has_the_queues_reason_alone() -> None:
    def in_queue(kind: str, name: str, *turns: Transition, waits: str = "no room") -> QueuedWorkload:
        return QueuedWorkload("q", "lab", kind, name, (Transition(1.0, "created"), *turns), waits)

    ended = (Transition(2.0, "admitted"), Transition(3.0, "evicted", "Preempted"))
    lives = [
        in_queue("Pod", "five-1"),
        in_queue("Job", "job"),
        in_queue("Pod", "bare-a", *ended, waits=""),
        in_queue("Pod", "bare-b", *ended, waits=""),
        in_queue("Pod", "bare-b", waits=""),  # created again, and admitted
    ]
    objects = [pod("five", f"five-{n}", node="n" if n > 2 else "", phase="Running") for n in range(1, 6)]
    gates = event("five-1", "default-scheduler", "non-empty gates")
    result = pods.pending_pods(ENV, objects, [gates], watch.held_back(lives))
    assert {item.name: (item.why, item.said, item.queue) for item in result} == {
        "five-1": ("waits in queue q: no room", (), "q"),
        "five-2": ("no event gives a reason yet", (), ""),
        "one": ("1 of its pods was not created", (), ""),
        "job": ("waits in queue q: no room", (), "q"),
        "bare-a": ("queue q ended it, and nothing creates it again: Preempted", (), "q"),
        "bare-b": ("1 of its pods was not created", (), ""),
        "bare-c": ("1 of its pods was not created", (), ""),
    }


def test_pods_count_as_placed_if_they_were_at_any_time() -> None:
    first = [pod("job", "a", **RUNS), pod("one", "b")]
    later = [pod("job", "a", node="n", phase="Succeeded"), *(pod("job", f"j{n}", **RUNS) for n in range(5))]
    assert pods.count_placed(ENV, first) == 1
    assert pods.count_placed(ENV, first, later) == 4, "those that follow in a job are not counted"


def test_nodes_that_half_of_the_pods_do_not_need_go_with_their_pods() -> None:
    """Three nodes have a pod each; the pod of p0-2 has no owner."""
    objects = [
        {
            "metadata": {"namespace": "lab", "name": f"pod-{index}", "ownerReferences": owners},
            "spec": {"nodeName": f"p0-{index}"},
        }
        for index, owners in enumerate(([{"kind": "ReplicaSet"}], [{"kind": "ReplicaSet"}], []))
    ]
    cluster = FakeCluster({PODS: objects})
    CalculatedGroups(group(4)).hasten_removal(cluster)
    gone = "/api/v1/namespaces/lab/pods/pod-1?gracePeriodSeconds=0"
    assert [path for path, _ in cluster.requests] == [f"{NODES}/p0-1", gone], (
        "half of four pods need two of three nodes; p0-2 has a bare pod"
    )


@pytest.mark.parametrize(("work", "message"), [(2, ""), (9, "; group p0 is at its maximum of 3 nodes")])
def test_a_waiting_pod_is_told_of_a_full_group(work: int, message: str) -> None:
    (waiting,) = pods.pending_pods(group(work), [pod("w0", "w")], [])[:1]
    assert waiting.why == f"no event gives a reason yet{message}"


def of_job(**job: Any) -> Environment:
    work = {"name": "train", "image": "a:1", "pool": "p0"}
    jobs = [{**work, "namespace": "lab", "kind": "job", **job}, {**work, "kind": "deployment"}]
    return aws({"machine": "m6i.xlarge"}, workloads=jobs)


@pytest.mark.parametrize("command", ["", "sh -c train", "sleep 90m", "sleep inf", "sleep infinity"])
def test_a_job_ends_unless_its_command_sleeps_for_ever(command: str) -> None:
    ends = "inf" not in command
    assert list(after_placement.finite_jobs(of_job(command=command.split()))) == [("lab", "train")] * ends
    assert not after_placement.finite_jobs(of_job(command=command.split(), parallelism=0)), "it is paused"


class OneByOne(FakeCluster):
    """A Job with one pod at a time, which succeeds once its run time is cut short."""

    def __init__(self, env: str, refused: bool = False) -> None:
        super().__init__()
        self.env, self.refused = env, refused
        self.succeeded: list[str] = []
        self.names = iter(("train-0-a", "train-1-b", "train-2-c"))
        self.running = next(self.names)

    def items(self, path: str, name: str = "") -> list[Json]:
        own = {"gpuform.io/environment": self.env, "app.kubernetes.io/name": "train"}
        if path == after_placement.JOBS:
            job = {"name": "train", "namespace": "lab"}
            return [{"metadata": job, "status": {"succeeded": len(self.succeeded)}}]
        phases = {**dict.fromkeys(self.succeeded, "Succeeded"), self.running: "Running"}
        return [
            {
                "metadata": {"name": pod, "namespace": "lab", "labels": own},
                "spec": {"containers": [], "nodeName": "n"},
                "status": {"phase": phase},
            }
            for pod, phase in (phases.items() if path == PODS else ())
        ]

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        assert body == {"metadata": {"annotations": {"simulator.gpuform.io/duration": "1s"}}}
        assert path == f"/api/v1/namespaces/lab/pods/{self.running}"
        if not self.refused:
            self.succeeded.append(self.running)
            self.running = next(self.names)


@pytest.mark.parametrize(
    ("refused", "quiet_s", "done", "troubles"),
    [
        (False, 20, ["train-0-a", "train-1-b"], []),
        (True, 0.8, [], ["job lab/train: 0 of 2 pods succeeded"]),
    ],
)
def test_pods_of_a_job_end_one_after_another_or_the_job_is_a_trouble(
    refused: bool, quiet_s: float, done: list[str], troubles: list[str]
) -> None:
    env = of_job(completions=2)
    cluster = OneByOne(env.name, refused)
    watch = Watch(cluster, env.name)
    with watch.running():
        result = after_placement.complete_jobs(env, cluster, watch, quiet_s, 20)
    assert result == (JobResult("lab", "train", len(done), 2),)
    assert cluster.succeeded == done
    assert list(after_placement.incomplete_jobs(result)) == troubles
    left = after_placement.without_jobs(env, result).workloads
    assert [(item.namespace, item.kind) for item in left] == [("default", "deployment")]


TABLE = yaml.safe_load(Path(__file__).with_name("pending.yaml").read_text())
ROWS = [(source, row) for source, rows in TABLE.items() for row in rows]


@pytest.mark.parametrize(("source", "row"), ROWS, ids=[f"{source}-{row['said']}" for source, row in ROWS])
def test_messages_of_the_scheduler_and_of_karpenter_in_words(source: str, row: dict[str, str]) -> None:
    if source == "scheduler":
        assert scheduler_reason(row["message"]) == row["said"]
    else:
        words = karpenter_reason(f"Failed to schedule pod, {row['message']}")
        assert words == f"Karpenter launches no node: {row['said']}"


def test_the_last_event_of_each_source_counts() -> None:
    def raw(source: str, message: str, at: str) -> Json:
        about = {"kind": "Pod", "namespace": "a", "name": "b"}
        said = {"reportingComponent": source, "reason": "r", "message": message}
        return {"involvedObject": about, **said, "eventTime": f"2026-01-01T00:00:{at}"}

    events = latest_events([raw("s", "new", "09.1Z"), raw("s", "old", "03Z"), raw("k", "other", "05Z")])
    assert [(item.source, item.message) for item in events] == [("k", "other"), ("s", "new")]
