"""The pool keeper's objects: for which pools, with which permissions, and its settings for each pool."""

from __future__ import annotations

import pytest

from infra.config import parse
from infra.incluster import pool_keeper as program
from infra.model.base import labels
from infra.plan import magnum, pool_keeper, sharing, startup
from tests.incluster.live_clusters import RESEARCH as ENV
from tests.plan.aws_environments import TABLE
from tests.plan.environments import declared

pytestmark = pytest.mark.unit


A100 = {"name": "a100", "machine": "p4d.24xlarge", "sharing": {"kind": "mig", "layout": "all-1g.5gb"}}
EXISTING = declared("existing", A100)
THEIRS = declared("existing", {"machine": "g4dn.xlarge"}, gpu_operator={"mode": "existing"})


def test_pools_with_nodes_that_join_without_something_are_kept() -> None:
    for env in TABLE.values():
        cut = [pool.name for pool in env.pools if pool.layout is not None and not pool.by_karpenter]
        assert [pool.name for pool in pool_keeper.kept_pools(env)] == (cut if env.has_mig_manager else [])
        assert bool(pool_keeper.manifests(env)) == bool(pool_keeper.kept_pools(env))
        assert [pool_keeper.field_manager(env, pool) for pool in env.pools] == [None] * len(env.pools)
        assert [pool_keeper.awaited_nodes(env, pool) for pool in env.pools] == [None] * len(env.pools)
    assert pool_keeper.kept_pools(ENV) == ENV.pools
    assert len({pool_keeper.field_manager(ENV, pool) for pool in ENV.pools}) == len(ENV.pools)


def test_a_node_that_joins_an_existing_cluster_lacks_everything() -> None:
    env = parse(EXISTING)
    (own,), (pool,) = pool_keeper.pools(env).values(), env.pools
    assert own["selector"] == {"pool": "p0"}
    assert own["labels"] == sharing.pool_labels(env, pool)
    assert own["taints"] == sharing.pool_taints(env, pool)
    assert [taint["key"] for taint in own["startup"]["taints"]] == [labels.GPU_NOT_READY]
    assert own["layout"] == {"config": "all-1g.5gb"}
    assert (own["joined_within"], own["manager"]) == (3600, pool_keeper.field_manager(env, pool))
    assert pool_keeper.awaited_nodes(env, pool) is None


@pytest.mark.parametrize("declared", [EXISTING, THEIRS], ids=["ours", "the cluster's operator"])
def test_its_pod_and_its_program_are_in_one_namespace(declared: dict[str, object]) -> None:
    found = pool_keeper.manifests(parse(declared))
    spaces = {item["kind"]: item["metadata"].get("namespace") for item in found if item["kind"] != "Role"}
    assert spaces["ConfigMap"] == spaces["Deployment"] == spaces["ServiceAccount"]


def test_it_gives_what_the_program_gives() -> None:
    """Different values would make each undo the other's."""
    told = pool_keeper.pools(ENV)
    for pool in ENV.pools:
        own = told[pool.name]
        assert own["labels"] == sharing.pool_labels(ENV, pool)
        assert program.ENVIRONMENT in own["labels"]  # else a node would never be done
        assert own["taints"] == sharing.pool_taints(ENV, pool)
        waits = startup.startup_change(ENV, pool)
        assert waits
        assert own["startup"] == {key: waits[key] for key in ("taints", "proof")}
        assert own["selector"] == magnum.selector(ENV, pool)
        assert own["manager"] == pool_keeper.field_manager(ENV, pool)
    assert told["gpu-a100"]["layout"] == {"config": "3g.20gb-2x2g.10gb"}
    assert "layout" not in told["gpu-t4"]


def test_as_many_nodes_are_waited_for_as_are_always_there() -> None:
    elastic, fixed = (pool_keeper.awaited_nodes(ENV, pool) for pool in ENV.pools)
    assert elastic
    assert fixed
    assert (elastic["nodes"], fixed["nodes"]) == (1, 1)
    assert "openstack coe nodegroup show research gpu-a100" in fixed["look"]


def test_a_layout_is_not_given_where_nothing_cuts_gpus() -> None:
    alone = {"mode": "device_plugin"}
    pool = {"name": "a100", "machine": "g4.p1.40g", "nodes": 1}
    env = parse({**ENV.resolved(), "gpu_operator": alone, "pools": [pool]})
    assert "layout" not in pool_keeper.pools(env)["a100"]


def test_the_program_and_the_plan_mean_the_same_keys() -> None:
    assert (program.ENVIRONMENT, program.POOL, program.LAYOUT, program.MIG_CONFIG, program.MIG_DEFAULT) == (
        labels.ENVIRONMENT,
        labels.POOL,
        labels.MIG_LAYOUT,
        labels.MIG_CONFIG,
        sharing.MIG_DISABLED,
    )
