"""Queues in `gpuform status` and on the page: used, borrowed, waiting and why, from Kueue's own objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuform.reports import tables
from gpuform.reports.page import render_page
from gpuform.usage import queues
from gpuform.usage.queues import WAITS_FOR_OTHERS, QueueStatus, Usage, Waiting
from gpuform.usage.status import summarise_status
from infra.config import parse
from infra.plan import queues as planned
from tests.reports import everything
from tests.reports.live import ENV as PLAIN

pytestmark = pytest.mark.unit

TEAMS = [
    {"name": "arts", "namespaces": ["arts", "ci"], "cohort": "lab", "quota": {"t4": 2}},
    {"name": "science", "namespaces": ["science"], "cohort": "lab", "quota": {"t4": 2}},
]
ENV = parse({**PLAIN.resolved(), "queues": {"teams": TEAMS}})
SHARE = "nvidia.com/gpu.shared"


def queue(name: str, used: int, borrowed: int, flavored: str = "t4", **active: str) -> dict[str, Any]:
    flavor = {"name": flavored, "resources": [{"name": SHARE, "nominalQuota": "2"}]}
    usage = {"name": SHARE, "total": str(used), "borrowed": str(borrowed)}
    status: dict[str, Any] = {
        "admittedWorkloads": 1,
        "conditions": [{"type": "Active", "status": "True", **active}],
        "flavorsUsage": [{"name": flavored, "resources": [usage]}],
    }
    spec = {"resourceGroups": [{"coveredResources": [SHARE], "flavors": [flavor]}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def workload(name: str, namespace: str, *conditions: tuple[str, str, str], **spec: Any) -> dict[str, Any]:
    metadata = {
        "name": f"job-{name}",
        "namespace": namespace,
        "creationTimestamp": "2026-11-27T02:13:02Z",
        "ownerReferences": [{"kind": "Job", "name": name}],
    }
    message = [{"type": kind, "status": status, "message": why} for kind, status, why in conditions]
    return {"metadata": metadata, "spec": spec, "status": {"conditions": message}}


NO_ROOM = "couldn't assign flavors to pod set main: insufficient unused quota, 1 more needed"
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
    return queues.summarise(ENV, LIVE, WORKS)


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


def test_a_flavor_with_a_topology_is_shown_as_its_pool() -> None:
    env = parse({**PLAIN.resolved(), "queues": {"teams": TEAMS, "topology": {"t4": []}}})
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
    arts = queues.summarise(ENV, live, WORKS)[0]
    assert arts.trouble == trouble
    (row, *_) = tables.queue_rows([arts])
    assert row[:2] == ("arts", trouble)


def test_the_tables_show_the_first_that_wait_and_how_many_more() -> None:
    current = summarise_status(ENV, [], [], queues=team_queues())
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
    assert queues.summarise(PLAIN, LIVE, WORKS) == ()
