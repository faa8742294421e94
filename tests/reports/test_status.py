"""Bringing live nodes and pods together with the pools that were declared."""

from __future__ import annotations

from typing import Any

import pytest
from rich.text import Text

from gpuform.claims import gather
from gpuform.reports import tables
from gpuform.status import summarise
from infra.config import parse
from infra.model.environment import Environment
from tests.components import aws_stacks, openstack_stacks
from tests.plan.aws_environments import TABLE

pytestmark = pytest.mark.unit

ENV = parse(
    {
        "name": "test",
        "cluster": {"kind": "embedded"},
        "pools": [
            {
                "name": "t4",
                "machine": "g2.5xlarge",
                "nodes": 1,
                "sharing": {"kind": "time_slicing", "replicas": 4},
            },
            {"name": "cpu", "machine": "m6i.xlarge", "nodes": 1},
        ],
    }
)


def node(name: str, pool: str, ready: str = "True", **allocatable: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"gpuform.io/pool": pool}},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"cpu": "4", **{f"nvidia.com/{key}": value for key, value in allocatable.items()}},
        },
    }


def pod(name: str, on: str | None, status: dict[str, Any], shares: int = 0) -> dict[str, Any]:
    limits = {"cpu": "1", "nvidia.com/gpu.shared": str(shares)} if shares else {"cpu": "1"}
    spec: dict[str, Any] = {"containers": [{"resources": {"limits": limits}}]}
    if on:
        spec["nodeName"] = on
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec, "status": status}


def test_json_has_the_documented_keys_and_counts_what_is_in_use() -> None:
    current = summarise(
        ENV,
        [node("t4-0", "t4", **{"gpu": "0", "gpu.shared": "4"}), node("cpu-0", "cpu")],
        [
            pod("a", "t4-0", {"phase": "Running"}, shares=1),
            pod("b", "t4-0", {"phase": "Pending"}, shares=2),
            pod("done", "t4-0", {"phase": "Succeeded"}, shares=1),
            pod("c", None, {"phase": "Pending"}, shares=1),
        ],
    )
    assert current.to_json()["pools"][0] == {
        "name": "t4",
        "sharing": "time_slicing",
        "declared": 1,
        "bounds": None,
        "nodes": [
            {
                "name": "t4-0",
                "ready": True,
                "allocatable": {"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 4},
                "used": {"nvidia.com/gpu.shared": 3},
                "waits_for": "",
            }
        ],
    }
    assert [p["name"] for p in current.to_json()["pods"]] == ["a", "b", "c", "done"]
    assert set(current.to_json()["pods"][0]) == {"namespace", "name", "node", "phase", "reason"}


def test_a_group_that_grows_says_between_what() -> None:
    """Only of Magnum's groups: what bounds a NodePool are amounts, and no number of nodes."""
    magnum = {"kind": "openstack", "template": "kubernetes-1.30.2-2", "version": "1.30"}
    pools = [
        {"name": "t4", "machine": "g2.5xlarge", "elastic": {"min": 2, "max": {"nodes": 4}}},
        {"name": "v100s", "machine": "g3.xlarge", "nodes": 1},
    ]
    env = parse({"name": "test", "cluster": magnum, "pools": pools})
    current = summarise(env, [node("t4-0", "t4"), node("t4-1", "t4", ready="False")], [])
    assert [pool["bounds"] for pool in current.to_json()["pools"]] == [{"min": 2, "max": 4}, None]
    assert [tables.nodes(pool) for pool in current.pools] == ["1/2, 2 to 4", "0/1"]
    assert summarise(TABLE["several counts"], [], []).pools[0].bounds is None


def of(kind: str) -> Environment:
    """One pool of two nodes; on existing clusters those that a selector finds."""
    pool: dict[str, Any] = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 2}
    cluster: dict[str, Any] = {"kind": kind}
    if kind == "aws":
        return parse(aws_stacks.small(pool))
    if kind == "openstack":
        return parse(openstack_stacks.small({**pool, "machine": "g2.5xlarge"}))
    if kind == "hosts":
        cluster |= {"driver": {"source": "distribution", "version": "580.95.05"}}
        cluster |= {"toolkit": {"version": "1.19.1"}}
        pool = {"name": "t4", "hosts": ["gpu-1", "gpu-2"], "gpu": {"models": ["T4"], "count": 2}}
    if kind == "existing":
        cluster["kubeconfig"] = "/k"
        pool = {"name": "t4", "machine": "g4dn.xlarge", "selector": {"a": "b"}}
    return parse({"name": "test", "cluster": cluster, "pools": [pool]})


@pytest.mark.parametrize(
    ("kind", "none", "one"),
    [
        ("embedded", "0/2", "1/2"),
        ("aws", "0/2", "1/2"),
        ("openstack", "0/2", "1/2"),
        ("hosts", "0/2", "1/2"),
        ("existing", "0/0", "1/1"),
    ],
)
def test_nodes_that_have_joined_are_counted_against_those_declared(kind: str, none: str, one: str) -> None:
    for live, said in (([], none), ([node("t4-0", "t4")], one)):
        current = summarise(of(kind), live, [])
        assert tables.nodes(current.pools[0]) == said
        assert current.to_json()["pools"][0]["declared"] == (None if kind == "existing" else 2)


@pytest.mark.parametrize(
    ("live", "fine"),
    [
        ([], False),
        ([node("t4-0", "t4")], False),
        ([node("t4-0", "t4"), node("t4-1", "t4", ready="False")], False),
        ([node("t4-0", "t4"), node("t4-1", "t4")], True),
        ([node("t4-0", "t4"), node("t4-1", "t4"), node("t4-2", "t4")], True),
        ([node("t4-0", "t4"), node("t4-1", "t4"), node("t4-2", "t4", ready="False")], False),
    ],
    ids=["none", "one missing", "one not ready", "all", "one more", "one more, not ready"],
)
def test_a_pool_without_all_of_its_nodes_is_red(live: list[Any], fine: bool) -> None:
    (cell,) = tables.pools(summarise(of("aws"), live, [])).columns[3].cells
    assert isinstance(cell, Text)
    assert cell.style == ("" if fine else "red")


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
    assert summarise(ENV, live, []).pools[0].settled is settled


def test_whole_thousands_are_counted_as_the_api_server_writes_them() -> None:
    (found,) = summarise(ENV, [node("t4-0", "t4", **{"gpu.shared": "1k"})], []).pools[0].nodes
    assert found.allocatable == {"nvidia.com/gpu.shared": 1000}


@pytest.mark.parametrize(
    ("noted", "waits_for"),
    [
        ({}, "the readiness gate has noted nothing yet"),
        ({"gpuform.io/gpu-waits-for": "it offers 3 of 4"}, "it offers 3 of 4"),
    ],
)
def test_a_node_that_is_not_proven_says_what_it_waits_for(noted: dict[str, str], waits_for: str) -> None:
    live = node("t4-0", "t4", **{"gpu.shared": "4"})
    live["metadata"]["annotations"] = noted
    live["spec"] = {"taints": [{"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}]}
    current = summarise(ENV, [live], [])
    (pool, *_) = current.pools
    assert (pool.nodes[0].waits_for, pool.settled) == (waits_for, False)
    assert tables.troubles(current) == [f"node t4-0 takes no pods yet: {waits_for}"]
    live["spec"] = {}
    assert tables.troubles(summarise(ENV, [live], [])) == []


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
    (pool,) = summarise(TABLE["several counts"], live, []).pools
    assert (pool.planned, pool.settled) == ({"nvidia.com/gpu.shared": 12}, settled)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Running"}, ""),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "more than one share"},
            "UnexpectedAdmissionError: more than one share",
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
            },
            "CrashLoopBackOff",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/9 nodes are available",
                    }
                ],
            },
            "Unschedulable: 0/9 nodes are available",
        ),
    ],
    ids=["runs", "refused", "crashes", "waits"],
)
def test_why_a_pod_is_not_as_it_should_be(status: dict[str, Any], reason: str) -> None:
    assert summarise(ENV, [], [pod("p", None, status)]).pods[0].reason == reason


def test_tables_say_what_is_offered_and_where_pods_are(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    current = summarise(
        ENV,
        [node("t4-0", "t4", **{"gpu.shared": "4"}), node("cpu-0", "cpu")],
        [pod("a", "t4-0", {"phase": "Running"}, shares=1)],
    )
    Console(width=160).print(tables.pools(current), tables.pods(current))
    out = capsys.readouterr().out
    assert "time_slicing: 4 per GPU" in out
    assert "gpu.shared 4" in out
    assert "t4-0" in out
    assert "no GPU" in out


@pytest.mark.parametrize(
    ("machine", "sharing", "detail"),
    [
        ("g2.5xlarge", {"kind": "mps", "replicas": 4}, "4 per GPU, 3840 MiB each"),
        ("g4.p1.40g", {"kind": "mig", "layout": "all-1g.5gb"}, "7x 1g.5gb"),
        (
            "g4.p4.40g",
            {"kind": "mig", "layout": {"1g.5gb": 7}, "devices": [2, 0], "share": {"replicas": 3}},
            "7x 1g.5gb on GPU 0, 2; 3 per slice",
        ),
    ],
)
def test_how_a_pool_is_shared_is_said_in_a_few_words(
    machine: str, sharing: dict[str, Any], detail: str
) -> None:
    pool = {"name": "p", "machine": machine, "nodes": 1, "sharing": sharing}
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool]})
    assert summarise(env, [], []).pools[0].detail == detail


def test_claimed_gpus_are_counted_as_devices_and_not_as_a_resource() -> None:
    cluster = {
        "kind": "aws",
        "region": "us-west-2",
        "version": "1.34",
        "network": {"cidr": "10.0.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
        "images": {"al2023": "al2023@v20260801", "al2023-nvidia": "al2023@v20260801"},
    }
    pool = {"name": "l4", "machine": "g6.12xlarge", "nodes": 1, "sharing": {"kind": "dra"}}
    env = parse({"name": "test", "cluster": cluster, "pools": [pool]})
    whole = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    sick = {**whole, "taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]}
    channel = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "l4-0"}
    slices = [
        {"spec": {**spec, "pool": {"name": "l4-0", "generation": 1}, "devices": [whole] * 8}},
        {
            "spec": {
                **spec,
                "pool": {"name": "l4-0", "generation": 2},
                "devices": [*[whole] * 4, sick, channel],
            }
        },
    ]
    asked = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 3}}]}
    claims = gather(
        slices, [{"metadata": {"namespace": "default", "name": "a-gpu-x"}, "spec": {"devices": asked}}]
    )
    running = {"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]}
    current = summarise(env, [node("l4-0", "l4")], [pod("a", "l4-0", running)], claims)
    (found,) = current.pools
    assert (found.planned, found.detail) == ({"gpu.nvidia.com": 4}, "whole GPUs by claim")
    assert (found.nodes[0].allocatable, found.nodes[0].used) == ({"gpu.nvidia.com": 4}, {"gpu.nvidia.com": 3})
    assert found.settled
    assert current.pods[0].requests == {"gpu.nvidia.com": 3}
    assert not summarise(env, [node("l4-0", "l4")], []).pools[0].settled, "no driver has published anything"


def test_slices_to_claim_are_counted_by_their_class() -> None:
    layout = {"3g.20gb": 1, "2g.10gb": 2}
    pool = {"name": "a", "machine": "g4.p1.40g", "nodes": 1, "sharing": {"kind": "dra", "layout": layout}}
    env = parse({"name": "test", "cluster": {"kind": "embedded"}, "pools": [pool]})
    one = {"name": "gpu-0-mig-3g20gb-9-4", "attributes": {"type": {"string": "mig"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a-0", "pool": {"name": "a-0", "generation": 1}}
    (found,) = summarise(
        env, [node("a-0", "a")], [], gather([{"spec": {**spec, "devices": [one] * 3}}], [])
    ).pools
    assert found.planned == found.nodes[0].allocatable == {"mig.nvidia.com": 3}
    assert (found.detail, found.settled) == ("2x 2g.10gb, 1x 3g.20gb by claim", True)
