"""The played cluster-autoscaler's decisions: which pods fit, which groups grow, which nodes go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuform.rehearse.autoscaler import groups
from gpuform.rehearse.autoscaler.fit import room
from gpuform.rehearse.autoscaler.group import Group
from gpuform.rehearse.autoscaler.sizing import Site, growth, keeps, unneeded
from infra.config import load

pytestmark = pytest.mark.unit

LABEL = "magnum.openstack.org/nodegroup"
TAINT = {"key": "node-role.kubernetes.io/gpu", "value": "true", "effect": "NoSchedule"}
HELD = {"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}
TOLERATES = [{"key": TAINT["key"], "operator": "Exists", "effect": "NoSchedule"}]
GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def node(name: str, *, gpus: int = 2, taints: tuple[Json, ...] = (TAINT,), **more: Any) -> Json:
    """A node of the group ci; born in the order of the names."""
    labels = {LABEL: "ci", "gpuform.io/pool": "ci", **more.get("labels", {})}
    allocatable = {"cpu": "28", "memory": "168Gi", "pods": "110", **({GPU: str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": name},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": more.get("ready", "True")}],
        },
    }


def pod(name: str, on: str = "", *, cpu: str = "1", gpus: int = 1, **spec: Any) -> Json:
    """A pod for the group; waiting where it is on no node."""
    limits = {GPU: str(gpus)} if gpus else {}
    containers = [{"resources": {"requests": {"cpu": cpu, "memory": "8Gi"}, "limits": limits}}]
    given = {"nodeSelector": {"gpuform.io/pool": "ci"}, "tolerations": TOLERATES, **spec}
    waiting = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    owner = {"kind": "ReplicaSet", "name": "r", "controller": True}
    return {
        "metadata": {"namespace": "lab", "name": name, "ownerReferences": [owner]},
        "spec": {"containers": containers, **given, **({"nodeName": on} if on else {})},
        "status": {"phase": "Running"} if on else {"phase": "Pending", "conditions": waiting},
    }


def group(**more: Any) -> Group:
    return Group("ci", (LABEL, "ci"), **{"least": 1, "most": 3, **more})


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"cpu": "28"}, True),
        ({"cpu": "28001m"}, False),
        ({"gpus": 3}, False),
        ({"nodeSelector": {"gpuform.io/pool": "other"}}, False),
        ({"tolerations": []}, False),
        ({"tolerations": [{"operator": "Exists"}]}, True),
        ({"tolerations": [{"key": TAINT["key"], "value": "true"}]}, True),
        ({"tolerations": [{"key": TAINT["key"], "value": "false"}]}, False),
        ({"tolerations": [{"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"}]}, False),
        ({"resourceClaims": [{"name": "gpu"}]}, False),
    ],
)
def test_what_fits_on_a_node(spec: Json, fits: bool) -> None:
    assert room(node("n"), ()).takes(pod("p", **spec)) is fits


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"operator": "In", "values": ["ci", "x"]}, True),
        ({"operator": "NotIn", "values": ["ci"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
        ({"key": "count", "operator": "Gt", "values": ["3"]}, True),
        ({"key": "count", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "nothing", "operator": "Gt", "values": ["3"]}, False),
    ],
)
def test_affinity_to_nodes(expression: Json, fits: bool) -> None:
    terms = [{"matchExpressions": [{"key": "gpuform.io/pool", **expression}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    there = room(node("n", labels={"count": "4"}), ())
    assert there.takes(pod("p", affinity={"nodeAffinity": required})) is fits


def test_pods_on_a_node_take_of_it_and_a_node_takes_no_more_than_so_many() -> None:
    assert not room(node("n"), [pod("a", "n"), pod("b", "n")]).takes(pod("p"))
    full = node("n")
    full["status"]["allocatable"]["pods"] = "1"
    assert not room(full, [pod("a", "n", gpus=0)]).takes(pod("p"))


def test_a_group_grows_by_what_pods_need_of_a_node_like_those_it_has() -> None:
    site = Site([node("ci-0")], [pod("a", "ci-0"), pod("b", "ci-0"), *map(pod, ("c", "d", "e"))])
    found = growth([group()], site)
    assert found.orders == {"ci": 2}, "two to a node"
    assert not found.refused


def test_it_grows_to_its_most_and_says_of_the_rest_why() -> None:
    site = Site([node("ci-0")], [pod(str(number)) for number in range(9)])
    found = growth([group()], site)
    assert found.orders == {"ci": 2}
    assert found.refused == {("lab", str(n)): "group ci has all of its 3 nodes" for n in (6, 7, 8)}


@pytest.mark.parametrize(
    "late",
    [
        node("ci-1", ready="False"),
        node("ci-1", gpus=0),
        node("ci-1", taints=(TAINT, HELD)),
        node("ci-1", labels={"gpuform.io/pool": "ci"}, gpus=0, taints=()),
    ],
    ids=["not ready", "offers nothing yet", "held back", "bare"],
)
def test_what_was_ordered_is_waited_for(late: Json) -> None:
    site = Site([node("ci-0"), late], [pod("a", "ci-0", gpus=2), pod("b"), pod("c")])
    assert growth([group()], site).orders == {}
    more = Site([*site.nodes], [*site.pods, pod("d")])
    assert growth([group()], more).orders == {"ci": 1}, "the third pod is one too many for it"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"gpus": 3}, "no node of a group that grows would take it"),
        ({"nodeSelector": {"gpuform.io/pool": "gone"}}, "no node of a group that grows would take it"),
    ],
)
def test_pods_that_no_node_of_a_group_would_take(asked: Json, why: str) -> None:
    found = growth([group()], Site([node("ci-0")], [pod("a", **asked)]))
    assert (found.orders, found.refused) == ({}, {("lab", "a"): why})


def test_an_empty_group_wakes_for_cores_and_memory_and_never_for_a_gpu() -> None:
    empty = group(
        least=0,
        known_when_empty={"cpu": 28, "memory": 168 * 2**30, "pods": 110},
        labels_when_empty={LABEL: "ci"},
    )
    anywhere: Json = {"nodeSelector": {}}
    found = growth([empty], Site([], [pod("a", gpus=0, **anywhere), pod("b", gpus=1, **anywhere)]))
    assert found.orders == {"ci": 1}
    assert set(found.refused) == {("lab", "b")}
    pinned = growth([empty], Site([], [pod("a", gpus=0)]))
    assert pinned.orders == {}, "the label of its pool is not known of it"


def test_running_ended_and_daemon_pods_are_not_waited_for() -> None:
    daemon = pod("d")
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "controller": True}]
    assert Site([], [pod("a", "n"), daemon]).waiting == []


def test_empty_nodes_go_down_to_the_least_the_youngest_first() -> None:
    nodes = [node("ci-0"), node("ci-1"), node("ci-2")]
    site = Site(nodes, [pod("a", "ci-1", cpu="20")])
    assert [one.node for one in unneeded([group(least=1)], site)] == ["ci-2", "ci-0"]
    assert [one.node for one in unneeded([group(least=2)], site)] == ["ci-2"]
    assert list(unneeded([group(least=3)], site)) == []
    assert list(keeps([group(least=3)], site)) == ["group ci keeps at least 3 of its nodes"]


def test_an_empty_node_goes_before_one_whose_pods_have_to_move() -> None:
    nodes = [node("ci-0"), node("ci-1")]
    assert [one.node for one in unneeded([group()], Site(nodes, [pod("a", "ci-1")]))] == ["ci-0"]


def test_pods_do_not_move_to_a_node_that_goes_itself() -> None:
    nodes = [node("ci-0"), node("ci-1"), node("ci-2")]
    site = Site(nodes, [pod("a", "ci-0", gpus=2), pod("b", "ci-2", gpus=2)])
    assert [one.node for one in unneeded([group()], site)] == ["ci-1"]


def test_a_node_that_is_little_used_goes_if_its_pods_fit_elsewhere() -> None:
    nodes = [node("ci-0"), node("ci-1")]
    (found,) = unneeded([group()], Site(nodes, [pod("a", "ci-0"), pod("b", "ci-1")]))
    assert found.node == "ci-1"
    assert found.why.startswith("Underutilized: ")
    full = Site(nodes, [pod("a", "ci-0", gpus=2), pod("b", "ci-1")])
    assert list(unneeded([group()], full)) == []
    assert "ci-1: its pods fit nowhere else, or nobody would make them again" in list(keeps([group()], full))
    busy = Site(nodes, [pod("a", "ci-0", cpu="20"), pod("b", "ci-1", cpu="14")])
    assert list(unneeded([group()], busy)) == []
    bare = pod("b", "ci-1")
    del bare["metadata"]["ownerReferences"]
    assert list(unneeded([group(least=1)], Site(nodes, [pod("a", "ci-0", cpu="20"), bare]))) == []


def test_the_groups_of_a_stack_are_its_elastic_pools() -> None:
    env = load(Path(__file__).resolve().parents[2] / "Pulumi.openstack-dev.yaml")
    (found,) = groups(env)
    assert (found.name, found.label, found.least, found.most) == ("gpu-ci", (LABEL, "gpu-ci"), 1, 3)
    assert found.known_when_empty == {"cpu": 28, "memory": 168 * 2**30, "pods": 110}
    made = found.node("gpu-ci-7")
    assert made["metadata"]["name"] == made["metadata"]["labels"]["kubernetes.io/hostname"] == "gpu-ci-7"
    assert "gpuform.io/pool" not in made["metadata"]["labels"], "labels are put on it once it has joined"
    assert "spec" not in made, "and so are taints"
    assert groups(load(Path(__file__).resolve().parents[2] / "Pulumi.aws-dev.yaml")) == ()
