from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.checks import queues
from infra.model.checks.environment import warnings
from infra.model.placement.queue_limits import Limit, Limits
from tests.config import tables
from tests.config.edits import changed, message
from tests.plan.environments import declared

pytestmark = pytest.mark.unit

GOOD = tables.GOOD["queues"]


def pools(count: int, **more: Any) -> dict[str, Any]:
    """An environment with that many pools, all in the quota of one team."""
    quota = {f"p{number}": 1 for number in range(count)}
    team = {"name": "all", "namespaces": ["all"], "quota": quota}
    given = [{"machine": "g2.5xlarge", **more}] * count
    return declared("existing", *given, queues={"teams": [team]})


def test_the_good_one_is_good() -> None:
    env = parse(GOOD)
    assert warnings(env) == ()


def test_what_others_lend_counts_if_it_may_be_borrowed() -> None:
    """Science has 4 and arts, in a cohort above science's, lends 3: with no limit science can have 7."""
    seven = {"at": "workloads/0/parallelism", "put": 7}
    assert parse(changed(GOOD, seven, {"at": "queues/teams/0/borrow", "put": {}}))
    assert "can have 6 at most" in message(changed(GOOD, seven))


def test_deployments_in_queues_may_ask_for_more_than_the_pool_has_as_they_wait() -> None:
    """Two that borrow in turn; without queues the second would never have a place."""
    each = {"kind": "deployment", "pool": "t4", "replicas": 6, "image": "a:1"}
    two = [
        {"name": "a", "namespace": "science", "queue": "science", **each},
        {"name": "b", "namespace": "arts", "queue": "arts", **each, "replicas": 5},
    ]
    assert parse(changed(GOOD, {"at": "workloads", "put": two}))
    free = [{key: value for key, value in item.items() if key != "queue"} for item in two]
    assert "workloads[1].replicas" in message(changed(GOOD, {"at": "workloads", "put": free}))


def test_kueues_limits() -> None:
    """CRD and webhook of Kueue 0.19.2; with one resource, 64 pools are one group."""
    assert parse(pools(64)).queues
    assert message(pools(65)) == (
        "queues.teams[0].quota: names 65 pools, and a queue of Kueue has 64 at most; name fewer pools"
    )
    taints = [{"key": f"k{number}"} for number in range(8)]
    assert parse(pools(1, taints=taints[:7])).queues
    assert message(pools(1, taints=taints)) == (
        "queues.teams[0].quota.p0: its nodes have 9 taints, and a flavor of Kueue tolerates 8; "
        "give the pool fewer taints"
    )


def offering(*pools: int) -> Limits:
    """Pools that all offer r0, each with that many resources."""
    return {f"p{at}": {f"r{number}": Limit() for number in range(count)} for at, count in enumerate(pools)}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (offering(64), None),
        (offering(65), "65 resources in a group of pools"),
        (offering(*[1] * 31, 16), None),
        (offering(*[1] * 32, 16), "528 pairs of pool and resource in a group"),
        ({f"p{at}": {f"r{at}": Limit()} for at in range(16)}, None),
        ({f"p{at}": {f"r{at}": Limit()} for at in range(17)}, "17 groups of pools with the same resources"),
    ],
)
def test_kueues_limits_of_groups(limits: Limits, expected: str | None) -> None:
    if expected is None:
        queues.check_groups(limits)
        return
    with pytest.raises(InputError, match=expected):
        queues.check_groups(limits)


@pytest.mark.parametrize(("number", "expected"), [(4, False), (5, True)])
def test_a_quota_beyond_what_the_pool_can_become_is_a_warning(number: int, expected: bool) -> None:
    found = warnings(parse(changed(GOOD, {"at": "queues/teams/1/quota/t4", "put": number})))
    fact = "the teams' quotas add up to 9 nvidia.com/gpu.shared or more, and the pool can have 8"
    assert found == (
        (f"queues.teams[1].quota.t4: {fact}; lower one, or allow more nodes",) if expected else ()
    )


def test_the_limit_of_an_elastic_pool_counts() -> None:
    aws = changed(tables.GOOD["aws"])
    name = aws["pools"][0]["name"]
    aws["pools"][0] |= {"elastic": {"max": {"cpu": 16}}, "capacity": ["spot", "on_demand"]}
    team = {"name": "a", "namespaces": ["a"], "quota": {name: 1000}}
    (text,) = [item for item in warnings(parse({**aws, "queues": {"teams": [team]}})) if "queues" in item]
    assert text.startswith(f"queues.teams[0].quota.{name}: the teams' quotas add up to 1000 ")


def test_a_group_of_magnums_that_may_be_empty_needs_the_pools_label() -> None:
    magnum = changed(tables.GOOD["openstack"])
    elastic = {"elastic": {"min": 0, "max": {"nodes": 2}}}
    pool = next(item for item in magnum["pools"] if "sharing" in item or "nodes" in item)
    pool.pop("nodes", None)
    pool |= elastic
    team = {"name": "a", "namespaces": ["a"], "quota": {pool["name"]: 1}}
    text = message({**magnum, "workloads": [], "queues": {"teams": [team]}})
    assert text.startswith(f"queues.teams[0].quota.{pool['name']}: cluster-autoscaler does not know")
