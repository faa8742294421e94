"""Matching live nodes and pods with the declared pools."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from gpuform.kubernetes.kinds import NODE_POOL, RESOURCE_CLAIM, RESOURCE_SLICE, Kind
from gpuform.reports import tables
from gpuform.usage import cluster_objects as objects
from gpuform.usage import nodes as seen
from gpuform.usage.status import summarise_status
from infra.model.environment import Environment
from tests.build import openstack_stacks
from tests.build.aws_environments import TABLE, aws
from tests.build.environments import on
from tests.reports.live import ENV, node, pod

pytestmark = pytest.mark.unit


def test_json_has_the_documented_keys_and_counts_what_is_in_use() -> None:
    current = summarise_status(
        ENV,
        [node("t4-0", "t4", **{"gpu": "0", "gpu.shared": "4"}), node("cpu-0", "cpu")],
        [
            pod("a", "t4-0", {"phase": "Running"}, shares=1),
            pod("b", "t4-0", {"phase": "Pending"}, shares=2),
            pod("done", "t4-0", {"phase": "Succeeded"}, shares=1),
            pod("c", None, {"phase": "Pending"}, shares=1),
        ],
    )
    has = {"allocatable": {"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 4}}
    has["used"] = {"nvidia.com/gpu.shared": 3}
    pool = {"name": "t4", "sharing": "time_slicing", "declared": 1, "bounds": None}
    nodes = [{"name": "t4-0", "ready": True, **has, "waits_for": ""}]
    assert current.to_json()["pools"][0] == {**pool, "nodes": nodes}
    assert [p["name"] for p in current.to_json()["pods"]] == ["a", "b", "c", "done"]


@pytest.mark.parametrize(("main", "first", "held"), [(0, 2, 2), (1, 2, 2), (2, 1, 2), (1, 0, 1)])
def test_what_only_an_init_container_asks_for_is_held_by_its_pod_too(
    main: int, first: int, held: int
) -> None:
    """As the scheduler and the recorded series count it: the larger of both, since they run in turn."""
    one = pod("a", "t4-0", {"phase": "Running"}, shares=main)
    limits = {"limits": {"nvidia.com/gpu.shared": str(first)}}
    one["spec"]["initContainers"] = [{"name": "first", "resources": limits}]
    (found,) = summarise_status(ENV, [node("t4-0", "t4", **{"gpu.shared": "4"})], [one]).pools[0].nodes
    assert found.used == {"nvidia.com/gpu.shared": held}
    assert seen.parse_pod(one, "test").requests["nvidia.com/gpu.shared"] == held


@pytest.mark.parametrize(
    ("key", "value"),
    [("gpu-count", "two"), ("gpu-count", ""), ("mig", "{"), ("mig", "[]"), ("mig", '{"0": 1}'),
     ("mig", '{"0": [1]}'), ("mig", '{"0": ["1g.5gb"]}'), ("mig", '{"0": ["1g.5gb@first"]}')],
)  # fmt: skip
def test_an_annotation_that_the_simulator_did_not_write_is_ignored(key: str, value: str) -> None:
    changed = node("t4-0", "t4")
    changed["metadata"]["annotations"] = {
        f"simulator.gpuform.io/{name}": text
        for name, text in {"gpu": "T4", "gpu-count": "1", key: value}.items()
    }
    (found,) = summarise_status(ENV, [changed], []).nodes
    assert [one.profile for one in found.devices] == [""] * (key == "mig")


@pytest.mark.parametrize(("owner", "there"), [("test", ["t4-0"]), ("other", [])])
def test_a_pool_of_another_environment_with_the_same_name_is_not_this_ones(
    owner: str, there: list[str]
) -> None:
    """Several stacks may share an existing cluster; nodes without an environment count as ours."""
    theirs = node("t4-0", "t4")
    theirs["metadata"]["labels"]["gpuform.io/environment"] = owner
    assert [one.name for one in summarise_status(ENV, [theirs], []).pools[0].nodes] == there


CUT = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
MIG = on("embedded", {"name": "t4", "machine": "g4.p1.40g", "sharing": CUT},
         gpu_operator={"mig_strategy": "mixed"})  # fmt: skip


@pytest.mark.parametrize(
    ("env", "offered", "sharing", "offers"),
    [
        (ENV, {"gpu.shared": "4"}, "time_slicing: 4 per GPU", "gpu.shared 4"),
        (ENV, {"gpu": "0", "gpu.shared": "4"}, "time_slicing: 4 per GPU", "gpu 0, gpu.shared 4"),
        (ENV, {"gpu.shared": "8"}, "declared time_slicing: 4 per GPU", "gpu.shared 8 (declared 4)"),
        (ENV, {"gpu.shared": "3"}, "declared time_slicing: 4 per GPU", "gpu.shared 3 of 4"),
        (ENV, {}, "declared time_slicing: 4 per GPU", "gpu.shared 0 of 4"),
        (MIG, {"mig-1g.5gb": "7"}, "declared mig: 2x 2g.10gb, 1x 3g.20gb",
         "mig-1g.5gb 7 (declared 0), mig-2g.10gb 0 of 2, mig-3g.20gb 0 of 1"),
    ],
)  # fmt: skip
def test_what_a_node_offers_is_shown_beside_what_is_declared(
    env: Environment, offered: dict[str, str], sharing: str, offers: str
) -> None:
    """A cancelled update leaves the former sharing, and a broken GPU is missing."""
    shown = tables.pools_table(summarise_status(env, [node("t4-0", "t4", **offered)], []))
    cells = [next(str(cell) for cell in column.cells) for column in shown.columns]
    assert (cells[2], cells[4]) == (sharing, offers)


def test_pods_that_another_stack_declares_are_not_this_ones() -> None:
    guest, a, b, plain = pods = [
        pod(name, "t4-0" if name == "guest" else None, {"phase": "Pending"})
        for name in ("guest", "a", "b", "plain")
    ]
    for item, owner in ((guest, "other"), (a, "other"), (b, "test")):
        item["metadata"]["labels"] = {"gpuform.io/environment": owner}
    assert "labels" not in plain["metadata"]
    current = summarise_status(ENV, [node("t4-0", "t4")], pods)
    assert [item.name for item in current.pods] == ["b", "guest", "plain"], "guest is on a node of this stack"


def test_a_node_with_gpus_that_is_of_no_pool_is_told() -> None:
    """Its label was changed by hand, or its pool was removed from the file."""
    changed, none, bare, theirs = (node(f"n{number}", "gone", gpu="1") for number in range(4))
    del none["metadata"]["labels"]["gpuform.io/pool"]
    bare["status"]["allocatable"] = {"cpu": "8", "nvidia.com/gpu": "0"}
    theirs["metadata"]["labels"]["gpuform.io/environment"] = "other"
    current = summarise_status(ENV, [none, changed, bare, theirs, node("t4-0", "t4", gpu="1")], [])
    says = "offers GPUs but is in no declared pool: its label gpuform.io/pool"
    assert tables.trouble_lines(current) == [f"node n0 {says} is gone", f"node n1 {says} is missing"]


def test_a_group_that_grows_says_between_what() -> None:
    """Only Magnum's groups: a NodePool is bounded by amounts, not by a number of nodes."""
    env = on("openstack", POOLS["elastic"], {"machine": "g3.xlarge"})
    current = summarise_status(env, [node("t4-0", "t4"), node("t4-1", "t4", ready="False")], [])
    assert [pool["bounds"] for pool in current.to_json()["pools"]] == [{"min": 2, "max": 4}, None]
    assert [tables.format_nodes(pool) for pool in current.pools] == ["1/2, 2 to 4", "0/1"]
    assert summarise_status(TABLE["several counts"], [], []).pools[0].bounds is None


POOLS: dict[str, dict[str, Any]] = {
    "openstack": {"name": "t4", "machine": "g2.5xlarge", "nodes": 2},
    "elastic": {"name": "t4", "machine": "g2.5xlarge", "elastic": {"min": 2, "max": {"nodes": 4}}},
    "hosts": {"name": "t4", "hosts": ["gpu-1", "gpu-2"], "gpu": {"models": ["T4"], "count": 2}},
    "existing": {"name": "t4", "machine": "g4dn.xlarge", "selector": {"a": "b"}},
}
TWO = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 2}


def environment_of(kind: str) -> Environment:
    """One pool of two nodes; on existing clusters those that a selector matches."""
    if kind == "aws":
        return aws(TWO)
    return on("openstack" if kind == "elastic" else kind, POOLS.get(kind, TWO))


@pytest.mark.parametrize(
    ("kind", "ready", "cell", "red"),
    [
        *((kind, [], "0/2", True) for kind in ("embedded", "aws", "openstack", "hosts")),
        *((kind, [True], "1/2", True) for kind in ("embedded", "aws", "openstack", "hosts")),
        ("existing", [], "0/0", False),
        ("existing", [True], "1/1", False),
        ("aws", [True, False], "1/2", True),
        ("aws", [True, True], "2/2", False),
        ("aws", [True, True, True], "3/2", False),
        ("aws", [True, True, False], "2/2", True),
    ],
)
def test_ready_nodes_are_counted_against_those_declared_and_are_red_if_one_is_missing(
    kind: str, ready: list[bool], cell: str, red: bool
) -> None:
    live = [node(f"t4-{at}", "t4", ready=str(is_ready)) for at, is_ready in enumerate(ready)]
    current = summarise_status(environment_of(kind), live, [])
    (shown,) = tables.pools_table(current).columns[3].cells
    assert isinstance(shown, Text)
    assert (shown.plain, [span.style for span in shown.spans]) == (cell, ["red"] * red)
    assert current.to_json()["pools"][0]["declared"] == (None if kind == "existing" else 2)


@pytest.mark.parametrize(
    ("live", "settled"),
    [
        ([node("t4-0", "t4", **{"gpu.shared": "4"})], True),
        ([node("t4-0", "t4", **{"gpu.shared": "4", "gpu": "0"})], True),
        ([node("t4-0", "t4", **{"gpu.shared": "4", "gpu": "1"})], False),
        ([node("t4-0", "t4", ready="False", **{"gpu.shared": "4"})], False),
        ([node("t4-0", "t4")], False),
        ([node("t4-0", "t4", **{"gpu.shared": "1k"})], False),
        ([], False),
    ],
    ids=["as planned", "zero is nothing", "also whole GPUs", "not ready", "nothing yet", "1000", "no node"],
)
def test_a_pool_is_settled_when_every_node_offers_just_what_was_planned(
    live: list[Any], settled: bool
) -> None:
    assert summarise_status(ENV, live, []).pools[0].settled is settled


@pytest.mark.parametrize("kind", ["embedded", "aws", "openstack", "hosts", "elastic"])
def test_a_pool_is_not_settled_while_fewer_nodes_have_joined_than_were_declared(kind: str) -> None:
    env = environment_of(kind)
    live = [node(f"t4-{number}", "t4", gpu="2" if kind == "hosts" else "1") for number in range(3)]
    settled = [summarise_status(env, live[:count], []).pools[0].settled for count in range(4)]
    assert settled == [False, False, True, True]


@pytest.mark.parametrize(
    ("noted", "waits_for"),
    [
        ({}, "the readiness gate has not reported yet"),
        ({"gpuform.io/gpu-waits-for": "it offers 3 of 4"}, "it offers 3 of 4"),
    ],
)
def test_a_node_that_is_not_proven_says_what_it_waits_for(noted: dict[str, str], waits_for: str) -> None:
    live = node("t4-0", "t4", **{"gpu.shared": "4"})
    live["metadata"]["annotations"] = noted
    live["spec"] = {"taints": [{"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}]}
    current = summarise_status(ENV, [live], [])
    pool = current.pools[0]
    assert (pool.nodes[0].waits_for, pool.settled) == (waits_for, False)
    assert tables.trouble_lines(current) == [f"node t4-0 takes no pods yet: {waits_for}"]
    live["spec"] = {}
    assert tables.trouble_lines(summarise_status(ENV, [live], [])) == []
    live["spec"] = {"unschedulable": True, "taints": [{"key": "gpuform.io/gpu-unhealthy", "value": "reset"}]}
    says = "node t4-0 takes no new pods: cordoned, out of use: reset"
    assert tables.trouble_lines(summarise_status(ENV, [live], [])) == [says]


def test_an_upgrade_of_the_driver_is_told_by_its_steps() -> None:
    """States of NVIDIA's k8s-operator-libs, pkg/upgrade/consts.go; the label stays after the upgrade."""

    def said(*states: str) -> list[str]:
        nodes = [node(f"t4-{index}", "t4", **{"gpu.shared": "4"}) for index in range(len(states))]
        for live, state in zip(nodes, states, strict=True):
            live["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] = state
        return tables.trouble_lines(summarise_status(ENV, nodes, []))

    assert said("upgrade-done", "upgrade-done") == []
    assert said("upgrade-done", "upgrade-required", "drain-required", "upgrade-required") == [
        "the operator upgrades the driver, nodes by step: drain-required 1, upgrade-required 2; done 1"
    ]
    assert said("upgrade-failed") == ["the operator upgrades the driver, nodes by step: upgrade-failed 1"]


@pytest.mark.parametrize(
    ("shares", "settled"),
    [
        ({"1": "3", "4": "12"}, True),
        ({"1": "3", "4": "3"}, False),
        ({"1": "12", "4": "12"}, False),
        ({"4": "12"}, True),
        ({"": "3"}, False),
    ],
)
def test_nodes_that_differ_in_gpus_are_each_measured_by_their_own(
    shares: dict[str, str], settled: bool
) -> None:
    live = [node(f"p0-{count}", "p0", **{"gpu.shared": much}) for count, much in shares.items()]
    for one, count in zip(live, shares, strict=True):
        one["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-count"] = count
    (pool,) = summarise_status(TABLE["several counts"], live, []).pools
    assert (pool.planned, pool.settled) == ({"nvidia.com/gpu.shared": 12}, settled)


WAITING = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Running"}, ""),
        ({"phase": "Failed", "reason": "Refused", "message": "more than one"}, "Refused: more than one"),
        ({"phase": "Running", "containerStatuses": [WAITING]}, "CrashLoopBackOff"),
        ({"phase": "Pending", "conditions": [UNSCHEDULABLE]}, "Unschedulable: 0/9 nodes"),
    ],
)
def test_pod_in_trouble_has_a_reason(status: dict[str, Any], reason: str) -> None:
    assert summarise_status(ENV, [], [pod("p", None, status)]).pods[0].reason == reason


def test_tables_say_what_is_offered_and_where_pods_are(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("t4-0", "t4", **{"gpu.shared": "4"}), node("cpu-0", "cpu")]
    current = summarise_status(ENV, nodes, [pod("a", "t4-0", {"phase": "Running"}, shares=1)])
    Console(width=160).print(tables.pools_table(current), tables.pods_table(current))
    out = capsys.readouterr().out
    words = ("time_slicing: 4 per GPU", "gpu.shared 4", "t4-0", "no GPU")
    assert [word for word in words if word not in out] == []


@pytest.mark.parametrize(
    ("env", "kinds"),
    [
        (aws(TWO), ()),
        (TABLE["sliced"], (NODE_POOL,)),
        (on("openstack", POOLS["elastic"]), ()),
        (
            on("openstack", {**openstack_stacks.T4, "sharing": {"kind": "dra"}}),
            (RESOURCE_SLICE, RESOURCE_CLAIM),
        ),
    ],
    ids=["AWS, fixed", "AWS, elastic", "OpenStack, elastic", "OpenStack, by claim"],
)
def test_karpenter_s_kind_is_asked_for_where_karpenter_is(env: Environment, kinds: tuple[Kind, ...]) -> None:
    assert objects.kinds_to_fetch(env) == kinds
