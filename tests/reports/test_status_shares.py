"""Lines of a status: sharing, claims, totals of a bill, monitoring, and faults that a user injected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuform.cli.local import monitoring_lines
from gpuform.reports.tables import bill_total
from gpuform.usage.cluster_objects import parse_claims
from gpuform.usage.status import ClusterStatus, faulty_nodes, summarise_status, unsettled_pools
from infra.config import parse
from infra.model.base.prices import PriceList
from infra.plan.cost import bill
from lab.plane import Member, Status
from lab.rehearse.cost_report import price_source
from lab.simulator.faults import Fault, render
from tests.components.aws_stacks import small
from tests.reports.live import ENV, node, pod

pytestmark = pytest.mark.unit


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
    assert summarise_status(env, [], []).pools[0].detail == detail


def test_claimed_gpus_are_counted_as_devices_and_not_as_a_resource() -> None:
    env = parse(small({"name": "l4", "machine": "g6.12xlarge", "nodes": 1, "sharing": {"kind": "dra"}}))
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
    claims = parse_claims(
        slices, [{"metadata": {"namespace": "default", "name": "a-gpu-x"}, "spec": {"devices": asked}}]
    )
    running = {"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]}
    current = summarise_status(env, [node("l4-0", "l4")], [pod("a", "l4-0", running)], claims)
    (found,) = current.pools
    assert (found.planned, found.detail) == ({"gpu.nvidia.com": 4}, "whole GPUs by claim")
    assert (found.nodes[0].allocatable, found.nodes[0].used) == ({"gpu.nvidia.com": 4}, {"gpu.nvidia.com": 3})
    assert found.settled
    assert current.pods[0].gpu_requests == {"gpu.nvidia.com": 3}
    assert not summarise_status(env, [node("l4-0", "l4")], []).pools[0].settled, (
        "no driver has published anything"
    )


def test_slices_to_claim_are_counted_by_their_class() -> None:
    layout = {"3g.20gb": 1, "2g.10gb": 2}
    pool = {"name": "a", "machine": "g4.p1.40g", "nodes": 1, "sharing": {"kind": "dra", "layout": layout}}
    env = parse({"name": "test", "cluster": {"kind": "embedded"}, "pools": [pool]})
    one = {"name": "gpu-0-mig-3g20gb-9-4", "attributes": {"type": {"string": "mig"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a-0", "pool": {"name": "a-0", "generation": 1}}
    (found,) = summarise_status(
        env, [node("a-0", "a")], [], parse_claims([{"spec": {**spec, "devices": [one] * 3}}], [])
    ).pools
    assert found.planned == found.nodes[0].allocatable == {"mig.nvidia.com": 3}
    assert (found.detail, found.settled) == ("2x 2g.10gb, 1x 3g.20gb by claim", True)


FLAVORS: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "pools": [
        {"name": "t4", "machine": "g2.5xlarge", "nodes": 2},
        {"name": "v100", "machine": "g1.4xlarge", "nodes": 1},
    ],
}


@pytest.mark.parametrize(
    ("own", "total", "message"),
    [
        ({}, "unknown", "none: no price list has these machines; set cost.prices"),
        (
            {"g2.5xlarge": 0.5},
            "730+",
            "the environment's own (cost.prices), without volumes: no price list has these machines",
        ),
    ],
)
def test_a_sum_of_nothing_but_unknown_prices_is_unknown_and_nobodys_prices(
    own: dict[str, float], total: str, message: str
) -> None:
    env = parse({**FLAVORS, "cost": {"prices": own}})
    assert bill_total(bill(env, PriceList())) == total
    assert price_source(env, PriceList()) == message


PROMETHEUS = Member("prometheus", 7, True, 2**26, 29237)
AT = "alerts: http://127.0.0.1:29237/api/v1/alerts (Prometheus; of simulated GPUs)"


@pytest.mark.parametrize(
    ("members", "message", "lines"),
    [
        ([Member("etcd", 1, True, 1, 2)], (), []),
        ([PROMETHEUS], (), [AT]),
        ([PROMETHEUS], ("rules a/b: no",), [AT, "monitoring: rules a/b: no"]),
    ],
)
def test_monitoring_lines(members: list[Member], message: tuple[str, ...], lines: list[str]) -> None:
    status = Status(tuple(members), Path("kubeconfig"), None, True, "v1.34.4", message)
    assert list(monitoring_lines(status)) == lines


SINCE = 1_800_000_000.0
FAULTS = "simulator.gpuform.io/faults"
UNHEALTHY = "simulator.gpuform.io/unhealthy"


def status_with(shares: str, notes: dict[str, str]) -> ClusterStatus:
    one = node("t4-0", "t4", **{"gpu.shared": shares})
    one["metadata"]["annotations"] = notes
    return summarise_status(ENV, [one, node("cpu-0", "cpu")], [])


def fault_note(*faults: Fault) -> dict[str, str]:
    return {FAULTS: render(faults) or "[]"}


CLEAR = "`gpuform simulate fault t4-0 --clear` clears it"


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        (fault_note(Fault("xid", 0, SINCE, 79)), f"GPU 0 has XID 79: {CLEAR}"),
        (fault_note(Fault("gpu-lost", 0, SINCE)), f"GPU 0 has gpu-lost: {CLEAR}"),
        (
            fault_note(Fault("ecc", 0, SINCE), Fault("ecc", 1, SINCE)),
            f"GPU 0 has ecc, GPU 1 has ecc: {CLEAR}",
        ),
        (fault_note(Fault("fabric-manager", -1, SINCE)), f"fabric-manager: {CLEAR}"),
        ({UNHEALTHY: "0"}, "GPU 0 is unhealthy: `gpuform simulate health t4-0 --gpu 0 --ok` clears it"),
        ({UNHEALTHY: "MIG-1"}, f"MIG-1 is unhealthy: `kubectl annotate node t4-0 {UNHEALTHY}-` clears it"),
    ],
    ids=["xid", "lost", "two", "fabric manager", "sick", "sick slice"],
)
def test_what_was_broken_is_named_with_the_way_to_mend_it(notes: dict[str, str], message: str) -> None:
    current = status_with("0", notes)
    assert not current.pools[0].settled
    assert faulty_nodes(current) == {"t4-0": message}
    assert unsettled_pools(current) == ()


@pytest.mark.parametrize(
    "notes",
    [
        {},
        fault_note(Fault("thermal", 0, SINCE)),
        fault_note(Fault("xid", 0, SINCE, 13)),
        fault_note(Fault("exporter-down", -1, SINCE)),
    ],
    ids=["nothing", "heat", "an application's XID", "exporter"],
)
def test_what_takes_no_gpu_away_excuses_nothing(notes: dict[str, str]) -> None:
    current = status_with("0", notes)
    assert [pool.name for pool in unsettled_pools(current)] == ["t4"]
    assert faulty_nodes(current) == {}


def test_a_broken_node_excuses_no_other_and_no_pool_without_nodes() -> None:
    broken, other = node("t4-0", "t4"), node("t4-1", "t4")
    broken["metadata"]["annotations"] = {UNHEALTHY: "0"}
    current = summarise_status(ENV, [broken, other, node("cpu-0", "cpu")], [])
    assert [pool.name for pool in unsettled_pools(current)] == ["t4"]
    assert list(faulty_nodes(current)) == ["t4-0"]
    assert [pool.name for pool in unsettled_pools(summarise_status(ENV, [], []))] == ["t4", "cpu"]


def test_a_fault_that_took_nothing_from_what_the_node_offers_is_no_news() -> None:
    """For example an XID from before the plugin started: the annotation stays, and the node is whole."""
    current = status_with("4", fault_note(Fault("xid", 0, SINCE, 79)))
    assert (faulty_nodes(current), unsettled_pools(current)) == ({}, ())
