"""Replays: who waits for how long, what is allocated, and what nodes cost; the pools of stacks as nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.config import load
from infra.model.base.errors import InputError
from infra.model.base.prices import PriceList
from infra.planner.placement import POLICIES, Nodes
from infra.planner.replay import Outcome, PoolNodes, check, pool_nodes, replay
from infra.planner.trace import Job, NodeSize, Shape
from tests.build.environments import on

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
ONE = Shape(1, 1000, 1000, 1024)
HOUR = 3600


def job(name: str, arrival: float, duration: float, shape: Shape = ONE) -> Job:
    return Job(name, shape, int(arrival) + 2, arrival, duration)


def nodes(gpus: int, count: int = 1, usd: float | None = 2.0, elastic: bool = False) -> PoolNodes:
    size = NodeSize("p", 64_000, 64_000, (1000,) * gpus, ("T4",))
    return PoolNodes("p", size, count, gpus, elastic, usd)


def outcome(jobs: list[Job], *pools: PoolNodes, policy: str = "most-allocated") -> Outcome:
    return replay(policy, POLICIES[policy], jobs, pools)


def test_a_job_waits_until_another_ends() -> None:
    found = outcome([job("a", 0, HOUR), job("b", 600, HOUR)], nodes(1))
    assert (found.waited, found.wait_mean_s, found.wait_p95_s) == (1, 3000, 3000)
    assert (found.allocated_mean, found.allocated_peak, found.gpu_hours) == (1, 1, 2)


def test_a_small_job_passes_a_large_one() -> None:
    four = Shape(4, 1000, 1000, 1024)
    jobs = [job("a", 0, 100), job("large", 1, 100, four), job("b", 2, 10), job("c", 3, 200, four)]
    found = outcome(jobs, nodes(4))
    assert (found.waited, found.wait_mean_s) == (2, (99 + 197) / 2)  # until 100 and 200
    assert found.gpu_hours * HOUR == pytest.approx(100 + 10 + 400 + 800)


def test_of_two_kinds_of_jobs_the_earlier_starts_first() -> None:
    other = Shape(1, 1000, 2000, 1024)
    jobs = [job("a", 0, 100), job("b", 1, 10), job("c", 2, 200, other)]
    assert outcome(jobs, nodes(1)).wait_mean_s == (99 + 108) / 2


def test_95_of_100_jobs_that_waited_did_not_wait_longer() -> None:
    found = outcome([job(str(at), 0, 10) for at in range(21)], nodes(1))
    assert (found.waited, found.wait_mean_s, found.wait_p95_s) == (20, 105, 190)


def test_elastic_nodes_cost_while_they_have_a_job_and_others_always() -> None:
    jobs = [job("a", 0, HOUR), job("b", 0, 2 * HOUR)]
    fixed, elastic = outcome(jobs, nodes(1, 4)), outcome(jobs, nodes(1, 4, elastic=True))
    assert (fixed.node_gpu_hours, fixed.usd) == (8, 16)
    assert (elastic.node_gpu_hours, elastic.usd) == (3, 6)
    assert fixed.allocated_mean == elastic.allocated_mean == 3 / 8
    assert outcome(jobs, nodes(1, 4, usd=None)).usd is None


def test_a_job_without_duration_leaves_its_room_to_the_next() -> None:
    found = outcome([job("a", 5, 0), job("b", 5, 0)], nodes(1))
    assert (found.waited, found.allocated_peak, found.gpu_hours) == (0, 1, 0)


def test_fragments_are_of_the_idle_gpus_at_the_peak() -> None:
    """Three of four GPUs are taken on each of two nodes: no usual job of two GPUs fits on the rest."""
    three, two = Shape(3, 1000, 1000, 1024), Shape(2, 1000, 1000, 1024)
    peak = [job(str(at), 0, 60, three) for at in range(2)]
    usual = [job(str(at), 60 + at, 1, two) for at in range(98)]
    found = outcome(peak + usual, nodes(4, 2))
    assert (found.allocated_peak, found.fragmented) == (6 / 8, 1)
    assert outcome(usual, nodes(4, 2)).fragmented == 0


@pytest.mark.parametrize(
    ("sharing", "devices"),
    [
        ({"kind": "exclusive"}, [1000] * 8),
        ({"kind": "time_slicing", "replicas": 4}, [250] * 32),
        ({"kind": "mps", "replicas": 3}, [333] * 24),
        ({"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}, [286] * 16 + [429] * 8),
        ({"kind": "mig", "layout": {"7g.40gb": 1}, "devices": [0, 1]}, [1000] * 8),
        ({"kind": "dra"}, [1000] * 8),
    ],
)
def test_shares_and_slices_of_a_pool_are_slots(sharing: dict[str, Any], devices: list[int]) -> None:
    env = on("embedded", {"machine": "p4d.24xlarge", "nodes": 3, "sharing": sharing})
    (pool,), unknown = pool_nodes(env, PriceList())
    assert sorted(pool.size.devices) == devices
    assert (pool.count, pool.gpus, pool.size.models, unknown) == (3, 8, ("A100-SXM4-40GB",), [])
    assert pool.size.gpu_only
    assert pool.usd_per_hour == PriceList().usd_per_hour["p4d.24xlarge"]


def test_elastic_pools_are_at_their_limit_for_each_capacity_type() -> None:
    """30 GPUs fit on sizes of g6e up to 4xlarge; two capacity types have that limit each."""
    found, unknown = pool_nodes(load(ROOT / "Pulumi.aws-prod.yaml"), PriceList())
    assert [(one.pool, one.count, one.gpus, one.elastic) for one in found] == [
        ("a100-mig", 2, 8, False),
        ("h100-training", 4, 8, True),
        ("l40s-inference", 60, 1, True),
        ("cpu", 20, 0, True),
    ]
    assert found[2].size.devices == (250,) * 4
    assert 15_000 < found[2].size.cpu_milli < 16_000
    assert not unknown


def test_what_is_not_declared_is_said() -> None:
    found, unknown = pool_nodes(on("hosts", {"gpu": {"models": ["T4"], "count": 2}}), PriceList())
    assert [(one.count, one.gpus) for one in found] == [(1, 2)]
    assert unknown == [
        "cores and memory of pool p0 are not known, and limit no job",
        "pool p0 has no known price, and is not in the sum",
    ]
    with pytest.raises(InputError, match="pools: the stack has no nodes to replay on"):
        pool_nodes(on("existing", {"gpu": {"models": ["T4"], "count": 2}}), PriceList())


@pytest.mark.parametrize(
    ("shape", "fact"),
    [
        (Shape(1, 1000, 1, 1, ("H100",)), "no node with H100 holds it; name some of T4, or add"),
        (Shape(8, 1000, 1, 1), "no node offers as many whole GPUs as 8; request less"),
        (Shape(1, 1000, 99_000, 1024), "no node with such GPUs has 99 cores and 1 GiB for it; request"),
        (Shape(0, 0, 1, 1), "no pool takes jobs without GPUs; add a pool without GPUs"),
    ],
)
def test_a_job_that_no_node_holds_is_bad_input(shape: Shape, fact: str) -> None:
    size = NodeSize("p", 64_000, 64_000, (1000,) * 4, ("T4",), gpu_only=True)
    with pytest.raises(InputError) as raised:
        check([job("a", 0, 1), job("b", 1, 1, shape)], Path("t.csv"), Nodes([size]))
    assert str(raised.value).startswith(f"t.csv:3:1: b: {fact}")


def test_only_models_that_hold_the_job_are_named() -> None:
    slices = NodeSize("mig", 64_000, 64_000, (428, 285), ("A100-SXM4-40GB",), gpu_only=True)
    whole = NodeSize("whole", 64_000, 64_000, (1000,) * 4, ("H100-SXM",), gpu_only=True)
    with pytest.raises(InputError, match=r"A100-SXM4-40GB holds it; name some of H100-SXM, or add"):
        check(
            [job("a", 0, 1, Shape(4, 1000, 1, 1, ("A100-SXM4-40GB",)))], Path("t.csv"), Nodes([slices, whole])
        )


def test_a_list_without_times_is_not_replayed() -> None:
    with pytest.raises(InputError, match=r"t\.csv:2:1: a: has no times; give creation_time"):
        check([Job("a", ONE, 2)], Path("t.csv"), Nodes([nodes(1).size]))
