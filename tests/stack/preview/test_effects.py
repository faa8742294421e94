"""Nodes and pods, live or declared, and the effect of each kind of change on them, by the engine's steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.clouds import CLOUDS
from gpuform.engine.events import Change, Message, Step
from gpuform.reports.pull_request import format_pods
from gpuform.stack.preview import effects as module
from gpuform.stack.preview.effect import Effect, Weight
from gpuform.stack.preview.effects import guard_notes
from gpuform.stack.preview.snapshot import PodRef, Snapshot, declared_snapshot, parse_snapshot
from infra.config import parse
from infra.model.base.guard_names import GUARD
from tests.build.aws_stacks import stack

pytestmark = pytest.mark.unit

CASES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "effects.yaml").read_text())
SNAPSHOT = Snapshot(
    {"a100": ("a100-0", "a100-1"), "t4": ("t4-0",)},
    (
        PodRef("science", "Job/train", "train-x", "a100", "a100-0", gpu=True, budget="keep-one"),
        PodRef("science", "Deployment/web", "web-x", "a100", "a100-1", gpu=False),
        PodRef("science", "", "alone", "t4", "t4-0", gpu=True),
    ),
    gpu_nodes=frozenset({"a100-0", "a100-1", "t4-0"}),
)


def effects(steps: list[Step], snapshot: Snapshot) -> tuple[Effect, ...]:
    return module.find_effects(steps, snapshot, [cloud.preview for cloud in CLOUDS.values()])


def step(of: dict[str, Any]) -> Step:
    urn = f"urn:pulumi:s::gpuform::{of['type']}::{of.get('name', 'it')}"
    paths, replaces = (tuple(of.get(key, ())) for key in ("paths", "replaces"))
    return Step(of["op"], urn, "planned", Change(of.get("before", {}), of.get("after", {}), paths, replaces))


def snapshot_of(case: dict[str, Any]) -> Snapshot:
    """The snapshot of all cases, with a case's own pods in the place of its pods."""
    if "pods" not in case:
        return SNAPSHOT
    defaults = {"namespace": "science", "owner": "Job/a", "pool": "a100", "gpu": True}
    pods = [PodRef(**{**defaults, **pod}) for pod in case["pods"]]
    daemons = tuple(pod for pod in pods if pod.owner.startswith("DaemonSet/"))
    return replace(SNAPSHOT, pods=tuple(pod for pod in pods if pod not in daemons), daemons=daemons)


@pytest.mark.parametrize("case", CASES)
def test_change_has_its_effects(case: str) -> None:
    found = effects([step(CASES[case]["step"])], snapshot_of(CASES[case]))
    said = [
        {"weight": one.weight.name.lower(), "what": one.what, "how": one.how}
        | ({"evicts": [pod.name for pod in one.evicts]} if one.evicts else {})
        for one in found
    ]
    assert said == CASES[case].get("does", [])


def test_pods_that_kserve_has_made_are_those_of_its_deployment() -> None:
    """Declared ones bear the workload's name."""
    pod = PodRef("science", "Deployment/web-predictor", "web-predictor-1", "a100", "a100-1", gpu=True)
    served = step(CASES["the model of a workload that KServe serves"]["step"])
    (found,) = effects([served], Snapshot({}, (pod,)))
    assert found.evicts == (pod,)


def test_losses_come_first_and_the_order_of_the_steps_does_not_matter() -> None:
    names = ("a label moves", "a node goes", "a cluster anew", "a workload's image")
    steps = [step(CASES[name]["step"]) for name in names]
    found = effects(steps, SNAPSHOT)
    assert [one.weight for one in found] == [Weight.LOSS, Weight.EVICTION, Weight.RESTART, Weight.NOTICE]
    assert effects(steps[::-1], SNAPSHOT) == found


def test_losses_that_only_the_guard_has_seen_are_told() -> None:
    """Once, with what acknowledges them; what steps show already is not repeated."""
    urn = f"urn:pulumi:s::gpuform::{GUARD}::losses-inside"
    found = (Effect(Weight.LOSS, "namespace science", "is deleted, with everything in it"),)
    lost = "pool t4 is deleted, with running pods: lab/train"
    stale = "acknowledge_loss: old acknowledges nothing (any more); remove it"
    messages = [
        Message("warning", f"{lost}; not acknowledged", urn),
        Message("warning", f"{lost}; not acknowledged", urn),
        Message("warning", "namespace science is deleted, with a; b; acknowledged", urn),
        Message("warning", stale, urn),
        Message("warning", f"{lost}; not acknowledged", urn.replace(GUARD, "another")),
    ]
    losses, others = guard_notes(messages, found)
    assert losses == (Effect(Weight.LOSS, "pool t4", "is deleted, with running pods: lab/train"),)
    assert others == (stale,)


def test_a_namespace_of_a_cluster_that_cannot_be_read_is_a_loss_where_a_guard_would_judge_it() -> None:
    """The embedded cluster has no guard."""
    deleted = step(CASES["no namespace"]["step"])
    guard = step({"op": "update", "type": GUARD, "name": "losses-inside"})
    declared = replace(SNAPSHOT, live=False)
    found = [
        effects(steps, known)[0].weight
        for steps in ([deleted], [deleted, guard])
        for known in (SNAPSHOT, declared)
    ]
    assert found == [Weight.RESTART, Weight.RESTART, Weight.RESTART, Weight.LOSS]


def test_a_replaced_pod_is_made_again() -> None:
    (ended,) = effects([step({**CASES["a pod anew"]["step"], "op": "delete"})], SNAPSHOT)
    (replaced,) = effects([step(CASES["a pod anew"]["step"])], SNAPSHOT)
    assert format_pods(ended.evicts) == "science/Pod/alone (not recreated)"
    assert format_pods(replaced.evicts) == "science/Pod/alone"


def test_two_nodes_of_a_pool_are_said_once() -> None:
    label = step(CASES["a label moves"]["step"])
    assert len(effects([label, label], SNAPSHOT)) == 1


def test_a_cluster_cannot_follow_its_network() -> None:
    """EKS accepts only other subnets of the cluster's own VPC: the update fails."""
    vpc, cluster = (step(CASES[name]["step"]) for name in ("a VPC anew", "other subnets of a cluster"))
    assert not effects([cluster], SNAPSHOT)
    found = effects([vpc, cluster], SNAPSHOT)
    losses = [(Weight.LOSS, "VPC prod"), (Weight.LOSS, "cluster prod")]
    assert [(one.weight, one.what) for one in found] == losses
    assert found[0].nodes == ("a100-0", "a100-1", "t4-0")
    assert "has to be replaced, too" in found[1].how


def test_what_goes_with_its_cluster_is_not_told_again() -> None:
    """An unowned cluster, replaced by another kubeconfig, leaves its namespaces behind."""
    cluster = step(CASES["a cluster anew"]["step"])
    inside = step({"op": "replace", "type": "kubernetes:core/v1:Namespace", "replaces": ["provider"]})
    renamed = step({"op": "replace", "type": "kubernetes:core/v1:Namespace", "replaces": ["metadata.name"]})
    assert [one.what for one in effects([cluster, inside], SNAPSHOT)] == ["cluster prod"]
    assert [one.what for one in effects([inside], SNAPSHOT)] == ["namespace it"]
    assert {one.what for one in effects([cluster, renamed], SNAPSHOT)} == {"cluster prod", "namespace it"}


NODES = [{"metadata": {"name": "n0", "labels": {"gpuform.io/pool": "t4"}}}, {"metadata": {"name": "n1"}}]
GPU = {"resources": {"limits": {"nvidia.com/gpu.shared": "1"}}}


def pod(name: str, owner: str = "", container: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    kind, _, of = owner.partition("/")
    owners = [{"kind": kind, "name": of, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": "a", "ownerReferences": owners, "labels": {"app": name}}
    metadata.update(more.pop("metadata", {}))
    spec = {"nodeName": "n0", "containers": [container or {}], **more.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, **more}


def test_a_deployments_pod_is_known_by_its_deployment() -> None:
    web = pod("web-5bc-x", "ReplicaSet/web-5bc", GPU, metadata={"labels": {"pod-template-hash": "5bc"}})
    alone, found = parse_snapshot(NODES, [web, pod("alone")], []).pods
    assert found == PodRef("a", "Deployment/web", "web-5bc-x", "t4", "n0", gpu=True)
    assert (found.is_lost, alone.is_lost) == (False, True), "no controller creates it again"


def test_snapshot_pods_use_a_gpu_by_limit_claim_or_init_container() -> None:
    claim = pod("claim", "Job/c", spec={"resourceClaims": [{"name": "gpu"}]})
    first = pod("first", "Job/f", spec={"initContainers": [GPU]})
    plain = pod("plain", "Job/p", {"resources": {"limits": {"cpu": "1"}}})
    pods = parse_snapshot(NODES, [claim, first, plain], []).pods
    assert [(one.name, one.gpu) for one in pods] == [("claim", True), ("first", True), ("plain", False)]


def test_snapshot_leaves_out_ended_pending_daemon_and_system_pods() -> None:
    ended = pod("ended", "Job/e", status={"phase": "Succeeded"})
    pending = pod("pending", "Job/p", spec={"nodeName": ""})
    daemon = pod("daemon", "DaemonSet/d")
    burn = pod("burn", "DaemonSet/b", GPU)
    system = pod("system", "Job/s", metadata={"namespace": "gpu-operator"})
    spare = pod("spare", "ReplicaSet/s", GPU, metadata={"namespace": "gpuform-placeholder"})
    found = parse_snapshot(NODES, [ended, pending, daemon, burn, system, spare], [])
    assert found.pods == ()
    assert [one.name for one in found.daemons] == ["burn"]


def test_monitorings_own_pods_do_not_count_but_others_in_a_namespace_of_that_name_do() -> None:
    own = {"namespace": "monitoring", "labels": {"app.kubernetes.io/instance": "monitoring-kube-prometheus"}}
    theirs = {"namespace": "monitoring", "labels": {"app.kubernetes.io/instance": "stack"}}
    grafana, other = pod("grafana", "Job/g", metadata=own), pod("other", "Job/o", metadata=theirs)
    assert [one.name for one in parse_snapshot(NODES, [grafana, other], []).pods] == ["other"]


def test_a_budget_covers_what_it_selects_in_its_namespace() -> None:
    def budget(namespace: str, app: str, **status: int) -> dict[str, Any]:
        spec = {"selector": {"matchLabels": {"app": app}}}
        return {"metadata": {"name": "keep", "namespace": namespace}, "spec": spec, "status": status}

    one, two = (budget("a", app, disruptionsAllowed=allowed) for app, allowed in (("one", 1), ("two", 0)))
    pods = [pod(name, "Job/o") for name in ("none", "one", "two")]
    by_expression = budget("a", "", disruptionsAllowed=0)
    by_expression["spec"] = {
        "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}
    }
    budgets = [budget("b", "one"), by_expression, one, two]
    found = [(one.budget, one.budget_blocks) for one in parse_snapshot(NODES, pods, budgets).pods]
    assert found == [("", False), ("keep", False), ("keep", True)]


def test_snapshot_has_gpu_nodes_and_pods_with_empty_dirs() -> None:
    node = {"metadata": {"name": "n2", "labels": {"nvidia.com/gpu.present": "true"}}}
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    pods = [pod("plain", "Job/p"), pod("shm", "Job/s", spec={"volumes": volumes})]
    found = parse_snapshot([*NODES, node], pods, [])
    assert found.gpu_nodes == {"n2"}
    assert [(one.name, one.empty_dir) for one in found.pods] == [("plain", False), ("shm", True)]


def test_declared_snapshot_has_pods_on_the_pools_that_they_name() -> None:
    snapshot = declared_snapshot(parse(stack("aws-prod")))
    assert not snapshot.live
    assert snapshot.nodes["a100-mig"] == ("a100-mig-0", "a100-mig-1")
    assert [one.owner for one in snapshot.pods_on("h100-training")] == ["Job/training"] * 2
    assert len(snapshot.pods_on("a100-mig", gpu_only=True)) == 4
    assert {one.owner for one in snapshot.pods if one.empty_dir} == {"Job/training"}, "it has shm"
    local = declared_snapshot(parse(stack("local")))
    assert set(local.all_nodes) - local.gpu_nodes == {"cpu-0", "cpu-1"}
    assert declared_snapshot(None).pods == ()
