"""Pods as they are in a cluster, or as they are declared."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.stack.preview.snapshot import PodRef, declared_snapshot, parse_snapshot
from infra.config import parse
from tests.components.aws_stacks import stack

pytestmark = pytest.mark.unit

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
    labels = {"pod-template-hash": "5bc"}
    (found,) = parse_snapshot(
        NODES, [pod("web-5bc-x", "ReplicaSet/web-5bc", GPU, metadata={"labels": labels})], []
    ).pods
    assert found == PodRef("a", "Deployment/web", "web-5bc-x", "t4", "n0", gpu=True)
    (alone,) = parse_snapshot(NODES, [pod("alone")], []).pods
    assert (found.is_lost, alone.is_lost) == (False, True), "no controller creates it again"


def test_who_uses_a_gpu() -> None:
    claim = pod("claim", "Job/c", spec={"resourceClaims": [{"name": "gpu"}]})
    first = pod("first", "Job/f", spec={"initContainers": [GPU]})
    plain = pod("plain", "Job/p", {"resources": {"limits": {"cpu": "1"}}})
    assert {one.name: one.gpu for one in parse_snapshot(NODES, [claim, first, plain], []).pods} == {
        "claim": True,
        "first": True,
        "plain": False,
    }


def test_what_does_not_count() -> None:
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
        return {
            "metadata": {"name": "keep", "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": status,
        }

    budgets = [budget("b", "one"), budget("a", "one", disruptionsAllowed=1)]
    budgets += [budget("a", "two", disruptionsAllowed=0)]
    pods = [pod(name, "Job/o") for name in ("none", "one", "two")]
    found = parse_snapshot(NODES, pods, budgets).pods
    assert [(one.name, one.budget, one.budget_blocks) for one in found] == [
        ("none", "", False),
        ("one", "keep", False),
        ("two", "keep", True),
    ]


def test_what_a_driver_upgrade_depends_on() -> None:
    node = {"metadata": {"name": "n2", "labels": {"nvidia.com/gpu.present": "true"}}}
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    pods = [pod("plain", "Job/p"), pod("shm", "Job/s", spec={"volumes": volumes})]
    found = parse_snapshot([*NODES, node], pods, [])
    assert found.gpu_nodes == {"n2"}
    assert [(one.name, one.empty_dir) for one in found.pods] == [("plain", False), ("shm", True)]


def test_what_is_declared_is_on_the_pools_that_it_names() -> None:
    snapshot = declared_snapshot(parse(stack("aws-prod")))
    assert not snapshot.live
    assert snapshot.nodes["a100-mig"] == ("a100-mig-0", "a100-mig-1")
    assert [one.owner for one in snapshot.pods_on("h100-training")] == ["Job/training"] * 2
    assert len(snapshot.pods_on("a100-mig", gpu_only=True)) == 4
    assert {one.owner for one in snapshot.pods if one.empty_dir} == {"Job/training"}, "it has shm"
    local = declared_snapshot(parse(stack("local")))
    assert set(local.all_nodes) - local.gpu_nodes == {"cpu-0", "cpu-1"}
    assert declared_snapshot(None).pods == ()
