"""A fault that a user injected on a node is reported with its repair, and not waited for."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage.broken import faulty, unsettled
from gpuform.usage.status import ClusterStatus, summarise
from lab.simulator.faults import Fault, stored
from tests.reports.test_status import ENV, node

pytestmark = pytest.mark.unit

SINCE = 1_800_000_000.0
FAULTS = "simulator.gpuform.io/faults"
UNHEALTHY = "simulator.gpuform.io/unhealthy"


def annotated(shares: str, notes: dict[str, str]) -> ClusterStatus:
    one = node("t4-0", "t4", **{"gpu.shared": shares})
    one["metadata"]["annotations"] = notes
    return summarise(ENV, [one, node("cpu-0", "cpu")], [])


def of(*faults: Fault) -> dict[str, str]:
    return {FAULTS: stored(faults) or "[]"}


CLEAR = "`gpuform simulate fault t4-0 --clear` clears it"


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        (of(Fault("xid", 0, SINCE, 79)), f"GPU 0 has XID 79: {CLEAR}"),
        (of(Fault("gpu-lost", 0, SINCE)), f"GPU 0 has gpu-lost: {CLEAR}"),
        (of(Fault("ecc", 0, SINCE), Fault("ecc", 1, SINCE)), f"GPU 0 has ecc, GPU 1 has ecc: {CLEAR}"),
        (of(Fault("fabric-manager", -1, SINCE)), f"fabric-manager: {CLEAR}"),
        ({UNHEALTHY: "0"}, "GPU 0 is unhealthy: `gpuform simulate health t4-0 --gpu 0 --ok` clears it"),
        (
            {UNHEALTHY: "MIG-1"},
            f"MIG-1 is unhealthy: `kubectl annotate node t4-0 {UNHEALTHY}-` clears it",
        ),
    ],
    ids=["xid", "lost", "two", "fabric manager", "sick", "sick slice"],
)
def test_what_was_broken_is_named_with_the_way_to_mend_it(notes: dict[str, str], said: str) -> None:
    current = annotated("0", notes)
    assert not current.pools[0].settled
    assert faulty(current) == {"t4-0": said}
    assert unsettled(current) == ()


@pytest.mark.parametrize(
    "notes",
    [
        {},
        of(Fault("thermal", 0, SINCE)),
        of(Fault("xid", 0, SINCE, 13)),
        of(Fault("exporter-down", -1, SINCE)),
    ],
    ids=["nothing", "heat", "an application's XID", "exporter"],
)
def test_what_takes_no_gpu_away_excuses_nothing(notes: dict[str, str]) -> None:
    current = annotated("0", notes)
    assert [pool.name for pool in unsettled(current)] == ["t4"]
    assert faulty(current) == {}


def test_a_broken_node_excuses_no_other_and_no_pool_without_nodes() -> None:
    broken, other = node("t4-0", "t4"), node("t4-1", "t4")
    broken["metadata"]["annotations"] = {UNHEALTHY: "0"}
    current = summarise(ENV, [broken, other, node("cpu-0", "cpu")], [])
    assert [pool.name for pool in unsettled(current)] == ["t4"]
    assert list(faulty(current)) == ["t4-0"]
    assert [pool.name for pool in unsettled(summarise(ENV, [], []))] == ["t4", "cpu"]


def test_a_fault_that_took_nothing_from_what_the_node_offers_is_no_news() -> None:
    """For example an XID from before the plugin started: the annotation stays, and the node is whole."""
    current = annotated("4", of(Fault("xid", 0, SINCE, 79)))
    assert (faulty(current), unsettled(current)) == ({}, ())


def test_json_says_nothing_of_it() -> None:
    current: dict[str, Any] = annotated("0", {UNHEALTHY: "0"}).to_json()
    assert set(current) == {"pools", "pods", "queues"}
    assert set(current["pools"][0]) == {"name", "sharing", "declared", "bounds", "nodes"}
