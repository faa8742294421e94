"""Lines of a status: sharing, claims, totals of a bill, monitoring, injected faults, and queues of Kueue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuform.cli.local import monitoring_lines
from gpuform.reports import tables
from gpuform.reports.page import render_page
from gpuform.usage import queues
from gpuform.usage.cluster_objects import parse_claims
from gpuform.usage.queues import WAITS_FOR_OTHERS, QueueStatus, Usage, Waiting
from gpuform.usage.status import ClusterStatus, faulty_nodes, summarise_status, unsettled_pools
from infra.config import parse
from infra.model.base.prices import PriceList
from infra.plan import queues as planned
from infra.plan.cost import bill
from lab.plane import Member, Status
from lab.rehearse.cost_report import price_source
from lab.simulator.faults import Fault, render
from tests.build.aws_environments import CLAIMED, aws
from tests.build.environments import on
from tests.reports import everything
from tests.reports.live import ENV, NO_ROOM, SHARE, node, pod, queue, workload

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("machine", "sharing", "detail"),
    [
        ("g2.5xlarge", {"kind": "mps", "replicas": 4}, "4 per GPU, 3840 MiB each"),
        ("g4.p1.40g", {"kind": "mig", "layout": "all-1g.5gb"}, "7x 1g.5gb"),
        ("g4.p4.40g", {"kind": "mig", "layout": {"1g.5gb": 7}, "devices": [2, 0], "share": {"replicas": 3}},
         "7x 1g.5gb on GPU 0, 2; 3 per slice"),
    ],
)  # fmt: skip
def test_how_a_pool_is_shared_is_said_in_a_few_words(
    machine: str, sharing: dict[str, Any], detail: str
) -> None:
    env = on("embedded", {"machine": machine, "sharing": sharing})
    assert summarise_status(env, [], []).pools[0].detail == detail


def slice_of(name: str, devices: list[Any], generation: int = 1) -> dict[str, Any]:
    """A ResourceSlice of a node."""
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": {"name": name, "generation": generation}}
    return {"spec": {**spec, "devices": devices}}


def test_claimed_gpus_are_counted_as_devices_and_not_as_a_resource() -> None:
    env = aws({**CLAIMED, "name": "l4", "nodes": 1})
    whole = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    sick = {**whole, "taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]}
    channel = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}
    slices = [slice_of("l4-0", [whole] * 8), slice_of("l4-0", [*[whole] * 4, sick, channel], generation=2)]
    asked = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 3}}]}
    claim = {"metadata": {"namespace": "default", "name": "a-gpu-x"}, "spec": {"devices": asked}}
    claims = parse_claims(slices, [claim])
    running = {"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]}
    current = summarise_status(env, [node("l4-0", "l4")], [pod("a", "l4-0", running)], claims)
    (found,) = current.pools
    assert (found.planned, found.detail) == ({"gpu.nvidia.com": 4}, "whole GPUs by claim")
    assert (found.nodes[0].allocatable, found.nodes[0].used) == ({"gpu.nvidia.com": 4}, {"gpu.nvidia.com": 3})
    assert found.settled
    assert current.pods[0].gpu_requests == {"gpu.nvidia.com": 3}
    (silent,) = summarise_status(env, [node("l4-0", "l4")], []).pools
    assert not silent.settled, "no driver has published anything"


def test_slices_to_claim_are_counted_by_their_class() -> None:
    sharing = {"kind": "dra", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
    env = on("embedded", {"name": "a", "machine": "g4.p1.40g", "sharing": sharing})
    one = {"name": "gpu-0-mig-3g20gb-9-4", "attributes": {"type": {"string": "mig"}}}
    claims = parse_claims([slice_of("a-0", [one] * 3)], [])
    (found,) = summarise_status(env, [node("a-0", "a")], [], claims).pools
    assert found.planned == found.nodes[0].allocatable == {"mig.nvidia.com": 3}
    assert (found.detail, found.settled) == ("2x 2g.10gb, 1x 3g.20gb by claim", True)


@pytest.mark.parametrize(
    ("own", "total", "message"),
    [
        ({}, "unknown", "none: no price list has these machines; set cost.prices"),
        ({"g2.5xlarge": 0.5}, "730+",
         "the environment's own (cost.prices), without volumes: no price list has these machines"),
    ],
)  # fmt: skip
def test_bill_without_any_known_price_is_unknown(own: dict[str, float], total: str, message: str) -> None:
    pools = ({"machine": "g2.5xlarge", "nodes": 2}, {"machine": "g1.4xlarge"})
    env = on("embedded", *pools, cost={"prices": own})
    assert tables.bill_total(bill(env, PriceList())) == total
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
def test_injected_fault_is_named_with_the_command_that_clears_it(notes: dict[str, str], message: str) -> None:
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
def test_injected_fault_that_takes_no_gpu_excuses_no_pool(notes: dict[str, str]) -> None:
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


TEAMS = [
    {"name": "arts", "namespaces": ["arts", "ci"], "cohort": "lab", "quota": {"t4": 2}},
    {"name": "science", "namespaces": ["science"], "cohort": "lab", "quota": {"t4": 2}},
]
QUEUED = parse({**ENV.resolved(), "queues": {"teams": TEAMS}})
LIVE = [queue("science", 3, 1), queue("arts", 0, 0), queue("theirs", 9, 9)]
WORKS = [
    workload("fits", "science", ("QuotaReserved", "True", "x"), ("Admitted", "True", "x")),
    workload("done", "ci", ("Admitted", "False", "x"), ("Finished", "True", "x")),
    workload("waits", "ci", ("QuotaReserved", "False", NO_ROOM)),
    workload("late", "arts", ("PodsReady", "False", "Not all pods are ready")),
    workload("off", "arts", active=False),
    workload("checked", "arts", ("QuotaReserved", "True", "x"), ("Admitted", "False", "a check")),
    workload("theirs", "elsewhere", ("QuotaReserved", "False", NO_ROOM)),
]


def team_queues() -> tuple[QueueStatus, ...]:
    return queues.summarise(QUEUED, LIVE, WORKS)


def test_each_team_has_what_it_uses_borrows_and_what_waits_and_why() -> None:
    arts, science = team_queues()
    assert arts.usage == (Usage("t4", SHARE, 2, 0, 0),)
    assert [(one.name, one.reason) for one in arts.waiting] == [
        ("checked", "a check"),
        ("late", WAITS_FOR_OTHERS),
        ("off", "it is deactivated"),
        ("waits", NO_ROOM),
    ]
    assert arts.waiting[-1] == Waiting("ci", "Job", "waits", NO_ROOM)
    assert science == QueueStatus("science", 1, (Usage("t4", SHARE, 2, 3, 1),), ())


def test_a_notebook_that_was_stopped_does_not_wait() -> None:
    stopped = workload("ada", "arts", ("QuotaReserved", "False", "StatefulSet scaled to zero"))
    assert len(queues.summarise(QUEUED, LIVE, [stopped])[0].waiting) == 1
    stopped["status"]["conditions"][0]["reason"] = "OnHold"
    assert queues.summarise(QUEUED, LIVE, [stopped])[0].waiting == ()


def test_a_flavor_with_a_topology_is_shown_as_its_pool() -> None:
    env = parse({**ENV.resolved(), "queues": {"teams": TEAMS, "topology": {"t4": []}}})
    name = planned.flavor_name(env, env.pool("t4"))
    assert name != "t4"
    assert queues.summarise(env, [queue("arts", 1, 0, name)], [])[0].usage == (Usage("t4", SHARE, 2, 1, 0),)


@pytest.mark.parametrize(
    ("live", "trouble"),
    [
        ([], "it does not exist"),
        ([queue("arts", 0, 0, status="False", message="Can't admit: no flavor")], "Can't admit: no flavor"),
    ],
)
def test_a_queue_that_admits_nothing_says_why(live: list[dict[str, Any]], trouble: str) -> None:
    arts = queues.summarise(QUEUED, live, WORKS)[0]
    assert arts.trouble == trouble
    (row, *_) = tables.queue_rows([arts])
    assert row[:2] == ("arts", trouble)


def test_what_waits_in_a_queue_is_counted_once() -> None:
    arts, _ = team_queues()
    rows = list(tables.queue_rows([replace(arts, usage=arts.usage * 2)]))
    assert [row[-1] for row in rows] == ["4", ""], "Kueue counts by queue, and not by pool"


def test_the_tables_show_the_first_that_wait_and_how_many_more() -> None:
    current = summarise_status(QUEUED, [], [], queues=team_queues())
    assert list(tables.queue_rows(current.queues)) == [
        ("arts", "t4", "gpu.shared", "2", "0", "0", "4"),
        ("science", "t4", "gpu.shared", "2", "3", "1", "0"),
    ]
    assert list(tables.waiting_rows(current, 1)) == [
        ("arts", "Job arts/checked", "a check"),
        ("arts", "and 3 more", "`gpuform status --json` has all"),
    ]


def test_the_page_has_them_only_if_there_are_queues() -> None:
    facts = everything.facts()
    assert "<h2>Queues</h2>" not in render_page(facts)
    text = render_page(replace(facts, status=replace(facts.status, queues=team_queues())))
    assert "<td>science</td><td>t4</td><td>gpu.shared</td><td>2</td><td>3</td><td>1</td>" in text
    assert "<td>Job ci/waits</td><td>couldn&#39;t assign" in text


def test_without_queues_there_is_nothing_of_it() -> None:
    assert queues.summarise(ENV, LIVE, WORKS) == ()
