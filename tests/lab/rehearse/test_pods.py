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
from infra.config import parse
from infra.model.environment import Environment
from lab.rehearse import after_placement, pods, watch
from lab.rehearse.cluster import NODES, PODS, Json
from lab.rehearse.node_source import CalculatedGroups
from lab.rehearse.reasons import Event, karpenter_reason, pending_reason, scheduler_reason
from lab.rehearse.watch import Watch
from tests.lab.rehearse.fake_cluster import FakeCluster
from tests.plan.aws_environments import aws
from tests.plan.test_simulated_clouds import ELASTIC, openstack

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
    work = [{"namespace": "lab", "image": "x:1", "pool": "p0", **kind} for kind in KINDS]
    return aws({"machine": "m6i.xlarge"}, workloads=work)


def pod(workload: str, name: str, **more: Any) -> Pod:
    return Pod("lab", name, workload, more.pop("node", ""), more.pop("phase", "Pending"), {}, **more)


def test_jobs_work_for_a_day_and_the_operators_namespace_is_the_programs() -> None:
    made = {
        (manifest["kind"], manifest["metadata"]["name"]): manifest
        for manifest in pods.manifests(environment())
    }
    assert {name for kind, name in made if kind == "Namespace"} == {"lab", "other"}
    assert made["Job", "job"]["spec"]["template"]["metadata"]["annotations"] == {pods.DURATION: "24h"}
    assert "annotations" not in made["Deployment", "five"]["spec"]["template"]["metadata"]
    assert pods.count_pods(environment()) == 13


def halved(env: Environment, pods_there: list[Pod]) -> list[tuple[str, Any]]:
    """What is asked for: the end of each path, and the changed fields."""
    cluster = FakeCluster()
    pods.halve(cluster, env, pods_there)
    return [(path.rpartition("namespaces/")[2], body and body["spec"]) for path, body in cluster.requests]


def test_half_of_each_go_rounded_up() -> None:
    objects = [Pod(space, name, name, "n", "Running", {})
             for space, name in (("lab", "bare-a"), ("lab", "bare-b"), ("other", "bare-c"))]  # fmt: skip
    assert halved(environment(), objects) == [
        ("lab/deployments/five", {"replicas": 2}),
        ("lab/deployments/one", {"replicas": 0}),
        ("lab/jobs/job", {"parallelism": 2}),
        ("lab/pods/bare-a", None),
        ("other/pods/bare-c", None),
    ]
    assert pods.count_pods(pods.halved(environment())) == 2 + 0 + 2 + 1


def test_of_two_colours_the_live_one_is_halved() -> None:
    pool = {"name": "t4", "machine": "g2.5xlarge", "nodes": 4}
    work = {"name": "web", "kind": "deployment", "pool": "t4", "image": "x:1", "replicas": 4}
    coloured = {**work, "service": {"port": 80}, "update": {"kind": "blue_green"}}
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool], "workloads": [coloured]})
    assert halved(env, []) == [("default/deployments/web-blue", {"replicas": 2})]
    assert [manifest["kind"] for manifest in pods.manifests(env)] == ["Service", "Deployment"]


def test_each_pod_that_does_not_run_has_a_reason() -> None:
    short = (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
    )
    first = "0/2 nodes are available: 2 node(s) had untolerated taint(s)."
    objects = [
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
        pod("five", "five-6", reason=f"Unschedulable: {short}"),
        pod("one", "one-1", node="n", phase="Succeeded"),
    ]
    at_limit = "Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool=p0)"
    messages = [
        Event("Pod", "lab", "five-2", "karpenter", "FailedScheduling", at_limit),
        Event("Pod", "lab", "five-6", "default-scheduler", "FailedScheduling", first),
        Event("Job", "lab", "job", "job-controller", "FailedCreate", "pods are forbidden: quota"),
        Event("Job", "lab", "job-2", "job-controller", "FailedCreate", "of another job"),
    ]
    result = {item.name: item for item in pods.pending_pods(environment(), objects, messages)}
    assert {name: one.why for name, one in result.items()} == {
        "five-2": "Karpenter launches no node: NodePool p0 is at its limit",
        "five-3": "no event gives a reason yet",
        "five-4": "UnexpectedAdmissionError: Pod was rejected: x",
        "five-5": "it is scheduled to node n but does not start",
        "five-6": "0 of 2 nodes fit: 1 has insufficient cpu, 1 is not in its pool",
        "job": "4 of its pods were not created: pods are forbidden: quota",
        "bare-a": "1 of its pods was not created",
        "bare-b": "1 of its pods was not created",
        "bare-c": "1 of its pods was not created",
    }
    assert result["five-2"].said == (f"karpenter: {at_limit}",)
    assert result["five-6"].said == (f"default-scheduler: {short}",), "an event keeps its first message"


def test_what_a_queue_holds_back_has_the_reason_of_its_queue_alone() -> None:
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
    gates = Event("Pod", "lab", "five-1", "default-scheduler", "FailedScheduling", "non-empty gates")
    result = {
        item.name: item for item in pods.pending_pods(environment(), objects, [gates], watch.held_back(lives))
    }
    ended_by = "queue q ended it, and nothing creates it again: Preempted"
    assert {name: (one.why, one.said, one.queue) for name, one in result.items()} == {
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
    assert pods.count_placed(environment(), first) == 1
    assert pods.count_placed(environment(), first, later) == 4, "those that follow in a job are not counted"


def test_a_pool_from_which_nothing_is_to_be_had_is_said_with_what_karpenter_says_of_it() -> None:
    other = "incompatible requirements, key gpuform.io/pool, gpuform.io/pool In [p0] not in [x]"
    messages = [
        Event("Pod", "lab", "one-1", "karpenter", "FailedScheduling", f"Failed to schedule pod, {other}"),
        Event("NodePool", "", "p0", "karpenter", "NoCompatibleInstanceTypes", "NodePool filtered out"),
        Event("NodePool", "", "p1", "karpenter", "NoCompatibleInstanceTypes", "another's"),
    ]
    result = {item.name: item for item in pods.pending_pods(environment(), [pod("one", "one-1")], messages)}
    assert result["one-1"].why == "Karpenter launches no node: NodePool p0 has no available instance type"
    assert result["one-1"].said[-1] == "karpenter, of NodePool p0: NodePool filtered out"


def test_what_half_of_the_pods_do_not_need_goes_with_its_pods() -> None:
    """Three nodes have a pod each; the pod of pool-0-2 has no owner."""
    objects = [
        {
            "metadata": {"namespace": "lab", "name": f"pod-{index}", "ownerReferences": owners},
            "spec": {"nodeName": f"pool-0-{index}"},
        }
        for index, owners in enumerate(([{"kind": "ReplicaSet"}], [{"kind": "ReplicaSet"}], []))
    ]
    cluster = FakeCluster({PODS: objects})
    CalculatedGroups(openstack({"elastic": ELASTIC}, {"nodes": 2}, work=4)).hasten_removal(cluster)
    gone = "/api/v1/namespaces/lab/pods/pod-1?gracePeriodSeconds=0"
    assert [path for path, _ in cluster.requests] == [f"{NODES}/pool-0-1", gone], (
        "half of four pods need two of three nodes; pool-0-2 has a bare pod"
    )


@pytest.mark.parametrize(("work", "message"), [(2, ""), (9, "; group pool-0 is at its maximum of 3 nodes")])
def test_a_pod_that_waits_is_told_of_a_full_group(work: int, message: str) -> None:
    env = openstack({"elastic": ELASTIC}, work=work)
    assert pods._group_remark(env, env.workloads[0]) == message


def of_job(**job: Any) -> Environment:
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
    assert list(after_placement.finite_jobs(of_job(command=command))) == [("lab", "train")] * ends
    assert not after_placement.finite_jobs(of_job(command=command, parallelism=0)), "it is paused"


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
            objects = {"name": "train", "namespace": "lab"}
            return [{"metadata": objects, "status": {"succeeded": len(self.succeeded)}}]
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


def test_pods_that_follow_end_as_well() -> None:
    env = of_job(completions=2)
    cluster = OneByOne(env.name)
    watch = Watch(cluster, env.name)
    with watch.running():
        assert after_placement.complete_jobs(env, cluster, watch, 20, 20) == (
            JobResult("lab", "train", 2, 2),
        )
    assert cluster.succeeded == ["train-0-a", "train-1-b"]
    left = after_placement.without_jobs(env, (JobResult("lab", "train", 2, 2),)).workloads
    assert [(item.namespace, item.kind) for item in left] == [("default", "deployment")]


def test_a_job_that_does_not_complete_is_a_trouble() -> None:
    env = of_job()
    cluster = OneByOne(env.name, refused=True)
    watch = Watch(cluster, env.name)
    with watch.running():
        result = after_placement.complete_jobs(env, cluster, watch, 0.8, 20)
    assert list(after_placement.incomplete_jobs(result)) == ["job lab/train: 0 of 1 pods succeeded"]


TABLE = yaml.safe_load(Path(__file__).with_name("pending.yaml").read_text())


@pytest.mark.parametrize("row", TABLE["scheduler"], ids=lambda row: row["said"])
def test_the_scheduler(row: dict[str, str]) -> None:
    assert scheduler_reason(row["message"]) == row["said"]


@pytest.mark.parametrize("row", TABLE["karpenter"], ids=lambda row: row["said"])
def test_karpenter(row: dict[str, str]) -> None:
    assert (
        karpenter_reason(f"Failed to schedule pod, {row['message']}")
        == f"Karpenter launches no node: {row['said']}"
    )


def test_both_are_heard_and_the_last_word_of_each_counts() -> None:
    def event(source: str, message: str, reason: str = "FailedScheduling") -> Event:
        return Event("Pod", "lab", "a", source, reason, message)

    reported = [
        event("default-scheduler", "no nodes available to schedule pods"),
        event("default-scheduler", "0/1 nodes are available: 1 Insufficient cpu."),
        event("karpenter", "Failed to schedule pod, all ... exceed limits for nodepool (NodePool=p)"),
        event("karpenter", "Pod should schedule on: nodeclaim/p-x", "Nominated"),
    ]
    assert pending_reason(reported) == (
        "0 of 1 nodes fit: 1 has insufficient cpu; Karpenter launches no node: NodePool p is at its limit"
    )
    assert pending_reason([]) == ""


def test_a_nodepool_from_which_nothing_is_to_be_had_is_named_where_karpenter_leaves_it_out() -> None:
    output = (
        "Failed to schedule pod, incompatible requirements, key gpuform.io/pool, gpuform.io/pool In [h100] "
        "not in gpuform.io/pool In [cpu]"
    )
    assert (
        karpenter_reason(output, ["h100"])
        == "Karpenter launches no node: NodePool h100 has no available instance type"
    )
    assert karpenter_reason(output) == "Karpenter launches no node: no NodePool matches the pod"
