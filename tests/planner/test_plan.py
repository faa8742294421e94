"""Plans of stacks and of demands: what is shared how, on how many nodes, and that gpuform accepts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.config import load, price_list
from infra.model.base.errors import InputError
from infra.model.base.prices import Cost, PriceList
from infra.model.environment import Environment
from infra.plan import cost
from infra.planner import demands, explain
from infra.planner.candidates import Offer, candidates_of
from infra.planner.need import Need
from infra.planner.plan import Plan, make_plan
from infra.planner.proposal import Proposal, plan_accepted, propose
from tests.build.aws_environments import aws
from tests.build.environments import on

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
STACKS = [
    file
    for file in (*ROOT.glob("Pulumi.*.yaml"), *(ROOT / "docs" / "examples").glob("*.yaml"))
    if file.stem != "Pulumi.onprem-dev"  # has no workloads
]
A100 = "A100-PCIE-40GB"


def plan_of(env: Environment) -> tuple[Plan, Proposal]:
    needs = demands.needs_of(env, (), ROOT)
    found = make_plan(env, needs, candidates_of(env, (), price_list(env)))
    return found, propose(found, env)


def offers(*machines: str) -> list[Offer]:
    return [Offer(machine=name) for name in machines]


def plan_for(needs: Sequence[Need], *machines: str) -> Plan:
    return make_plan(None, needs, candidates_of(None, offers(*machines), PriceList()))


def shared(plan: Plan) -> list[tuple[str, int]]:
    return sorted((group.sharing.text, group.nodes) for group in plan.groups)


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem.removeprefix("Pulumi."))
def test_gpuform_accepts_the_plan_of_every_example(file: Path) -> None:
    env = load(file)
    found, proposal = plan_of(env)
    assert proposal.refusal == ""
    assert found.now is not None
    assert found.bound == pytest.approx(found.price)
    assert found.price <= found.now + 1e-6
    pods = {need.name: need.replicas for need in found.needs}
    for one in proposal.placed:
        pods[one.demand] -= one.pods
    assert not any(pods.values())


def test_a_stack_that_is_as_small_as_can_be_is_left_alone() -> None:
    env = load(ROOT / "Pulumi.aws-dev.yaml")
    _, proposal = plan_of(env)
    declared = [pool.model_dump(mode="json", by_alias=True, exclude_unset=True) for pool in env.pools]
    assert sorted(proposal.pools, key=str) == sorted(declared, key=str)


def test_aws_prods_four_slices_need_one_node_of_two() -> None:
    found, proposal = plan_of(load(ROOT / "Pulumi.aws-prod.yaml"))
    (pool,) = [pool for pool in proposal.pools if pool["name"] == "a100-mig"]
    assert pool["nodes"] == 1
    assert found.now is not None
    assert found.now - found.price == pytest.approx(21.9686, abs=1e-3)  # a p4d.24xlarge with its disk


CERN = (
    Need("simulation", memory_mib=9523),
    Need("inference", memory_mib=9523, workload_class="latency"),
    Need("notebook", memory_mib=4096, unbounded=True, workload_class="interactive"),
)
"""CERN's three neighbours; 10 GB is 9523 MiB, which a 2g.10gb has."""


def test_cerns_three_neighbours_get_cerns_layout_and_the_reason_is_the_notebook() -> None:
    found = plan_for(CERN, A100)
    assert shared(found) == [("MIG 1 x 3g.20gb + 2 x 2g.10gb", 1)]
    assert found.bound == 1
    reasons = {
        one.reason
        for one in explain.alternatives(found)
        if one.demand == "notebook" and "time-slicing" in one.part
    }
    assert reasons == {"it takes all the memory that it gets, and time-slicing limits none"}


@pytest.mark.parametrize(
    ("machine", "owners", "gpus"), [("T4", ("a", "a"), 1), ("T4", ("a", "b"), 2), (A100, ("a", "b"), 1)]
)
def test_owners_share_a_gpu_only_by_mig(machine: str, owners: tuple[str, str], gpus: int) -> None:
    needs = [
        Need(str(index), memory_mib=2048, workload_class="low_priority", trust=owner)
        for index, owner in enumerate(owners)
    ]
    assert plan_for(needs, machine).price == gpus


def test_pods_of_several_gpus_are_on_one_node() -> None:
    """Three pods of three GPUs: two on a node of eight, though nine GPUs would be enough."""
    found = plan_for([Need("train", replicas=3, count=3)], "p4d.24xlarge")
    assert shared(found) == [("whole GPU", 2)]


def test_a_machine_needs_the_cpu_of_the_pods_beside_the_gpus_memory() -> None:
    small = Need("a", replicas=4, memory_mib=11000, workload_class="low_priority", cpu=500, ram_mib=1000)
    large = Need("a", replicas=4, memory_mib=11000, workload_class="low_priority", cpu=1800, ram_mib=1000)
    machines = ("g6e.xlarge", "g6e.2xlarge")
    assert [group.candidate.machine for group in plan_for([small], *machines).groups] == ["g6e.xlarge"]
    assert [group.candidate.machine for group in plan_for([large], *machines).groups] == ["g6e.2xlarge"]


def test_the_cheaper_of_two_models_is_chosen_and_the_bound_proves_it() -> None:
    found = plan_for([Need("a", replicas=3, memory_mib=4096)], "g4dn.xlarge", "g5.xlarge")
    assert [group.candidate.machine for group in found.groups] == ["g4dn.xlarge"]
    assert found.price == pytest.approx(found.bound)


def test_a_service_gets_what_its_measurements_say(tmp_path: Path) -> None:
    """12 requests per second: with 100 ms only the small batch counts, 5 per slice and 9 per half GPU."""
    rows = (
        "part,batch,processes,throughput,latency_ms",
        *("1g.5gb,1,1,5,40", "1g.5gb,8,1,20,160", "3g.20gb,1,1,9,30"),
    )
    (tmp_path / "m.csv").write_text("\n".join(rows))
    serves = {"rate": 12.0, "latency_ms": 100.0, "measured": "m.csv"}
    demand = demands.Demand.model_validate({"name": "svc", "serves": serves})
    found = plan_for(demands.needs_of(None, [demand], tmp_path), A100)
    slots = sum(sum(kinds.values()) for group in found.groups for kinds in group.pods.values())
    assert (found.price, slots) == (1, 2)  # 3g.20gb and 1g.5gb, or 2 x 3g.20gb
    parts = {found.parts[kind].profile for group in found.groups for kind in group.pods["svc"]}
    assert parts <= {"1g.5gb", "3g.20gb"}


def test_profiles_that_were_not_measured_are_predicted(tmp_path: Path) -> None:
    """Work of 10 ms a request on one slice, and none that is not shared: 2g.10gb is twice as fast.

    The 5 ms of its smallest batch count a quarter longer.
    """
    rows = ["part,batch,processes,throughput,latency_ms"]
    for part, slices in (("1g.5gb", 1), ("3g.20gb", 3), ("7g.40gb", 7)):
        for batch in (1, 2, 4, 8, 16, 32):
            rows.append(f"{part},{batch},1,{100 * slices},{batch * 10 / slices}")
    (tmp_path / "m.csv").write_text("\n".join(rows))

    def throughputs(latency_ms: float) -> Mapping[str, float]:
        serves = {"rate": 190.0, "latency_ms": latency_ms, "measured": "m.csv", "predict": True}
        demand = demands.Demand.model_validate({"name": "svc", "serves": serves})
        (need,) = demands.needs_of(None, [demand], tmp_path)
        return need.measured

    found = throughputs(100.0)
    assert found["1g.5gb"] == 100
    assert found["2g.10gb"] == pytest.approx(200, rel=0.05)
    assert found["4g.20gb"] == pytest.approx(400, rel=0.05)
    assert "2g.10gb" in throughputs(14.0)
    assert "2g.10gb" not in throughputs(11.0)


def hosts(count: int, sharing: dict[str, Any], replicas: int) -> Environment:
    names = [f"gpu-{index}" for index in range(count)]
    pool = {"name": "a100", "hosts": names, "gpu": {"models": [A100], "count": 2}, "sharing": sharing}
    work = {"name": "w", "kind": "deployment", "pool": "a100", "replicas": replicas, "slice": "3g.20gb"}
    return on("hosts", pool, workloads=[work])


def test_hosts_beyond_the_need_stay_in_the_pool() -> None:
    env = hosts(3, {"kind": "mig", "layout": {"3g.20gb": 2}}, 4)
    found, proposal = plan_of(env)
    assert (found.price, found.now) == (2, 6)
    assert [host["name"] for host in proposal.pools[0]["hosts"]] == ["gpu-0", "gpu-1", "gpu-2"]


def test_more_pods_than_the_hosts_hold_are_an_error() -> None:
    env = hosts(1, {"kind": "mig", "layout": {"3g.20gb": 2}}, 4)
    more = demands.Demand.model_validate({"name": "default/w", "replicas": 5})
    needs = demands.needs_of(env, [more], ROOT)
    with pytest.raises(InputError, match="more hosts than the pools have"):
        make_plan(env, needs, candidates_of(env, (), price_list(env)))


@pytest.mark.parametrize(
    "sharing",
    [
        {"kind": "mig", "layout": {"3g.20gb": 2}, "share": {"replicas": 3}},
        {"kind": "mig", "layout": {"3g.20gb": 2}, "devices": [0]},
    ],
    ids=["share", "devices"],
)
def test_sharing_that_is_never_proposed_is_kept(sharing: dict[str, Any]) -> None:
    found, proposal = plan_of(hosts(1, sharing, 2))
    assert shared(found) == [("as now", 1)]
    assert proposal.pools[0]["sharing"] == sharing


def test_a_node_has_no_more_pods_than_its_kubelet_takes() -> None:
    """200 notebooks of 100 MiB would fit on the memory of eight T4s; a node takes 110 pods."""
    needs = [Need("notebook", replicas=200, memory_mib=100, workload_class="low_priority")]
    (group,) = plan_for(needs, "T4").groups
    assert group.nodes == 4  # 64 pods on a GPU are the most that are considered
    machine = "g4dn.metal"
    (group,) = plan_for([Need("notebook", replicas=800, memory_mib=100, trust="a")], machine).groups
    assert group.nodes == 3  # 8 GPUs with 48 clients of MPS are 384 pods


@pytest.mark.parametrize("strategy", ["mixed", "single"])
def test_a_cut_pool_names_its_strategy_if_the_operators_is_another(strategy: str) -> None:
    pool = {"name": "a100", "machine": "g4.p1.40g", "nodes": 2}
    work = {"pool": "a100", "kind": "deployment", "replicas": 2}
    env = on("embedded", pool, workloads=[work], gpu_operator={"mig_strategy": strategy})
    demand = demands.Demand.model_validate({"name": "w0", "gpu_memory": "18Gi", "compute": 0.4})
    found = make_plan(env, demands.needs_of(env, [demand], ROOT), candidates_of(env, (), price_list(env)))
    proposal = propose(found, env)
    assert shared(found) == [("MIG 2 x 3g.20gb", 1)]
    assert proposal.pools[0]["sharing"].get("strategy") == (None if strategy == "mixed" else "mixed")
    assert proposal.refusal == ""


def test_a_refusal_for_several_reasons_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(_: object) -> None:
        raise InputError("a", "is wrong", "omit it", others=[InputError("b", "is too", "omit it")])

    monkeypatch.setattr("infra.planner.proposal.parse", parse)
    env = on("embedded", {"machine": "g6.xlarge"}, workloads=[{"pool": "p0"}])
    found = make_plan(env, demands.needs_of(env, [], ROOT), candidates_of(env, (), price_list(env)))
    assert propose(found, env).refusal == "a: is wrong; omit it; b: is too; omit it"


WHOLE, SLICED = {"machine": "g4.p4.40g", "nodes": 1}, {"kind": "mig", "layout": {"1g.5gb": 7}}
QUOTAS: dict[str, tuple[dict[str, Any], list[tuple[str, int]], bool]] = {
    "of a pool that changes": ({"p2": {"1g.5gb": 2}}, [("p2", 0), ("p2-2", 1)], False),
    "of a pool without workloads": ({"p1": 2, "p0": 2}, [("p1", 0), ("p0", 1)], True),
}


@pytest.mark.parametrize(("quota", "nodes", "avoids"), QUOTAS.values(), ids=QUOTAS)
def test_a_plan_has_the_pools_of_quotas_and_nothing_that_these_refuse(
    quota: dict[str, Any], nodes: list[tuple[str, int]], avoids: bool
) -> None:
    pools = ({**WHOLE, "name": "p0"}, {**WHOLE, "name": "p1"}, {"machine": "g4.p1.40g", "sharing": SLICED})
    work = {"kind": "pod", "gpu_product": "NVIDIA-A100-PCIE-40GB"}
    env = on("embedded", *pools, workloads=[work], namespaces=[{"name": "team", "quota": quota}])
    needs, candidates = demands.needs_of(env, (), ROOT), candidates_of(env, (), price_list(env))
    _, proposal = plan_accepted(env, needs, candidates, 10.0)
    assert proposal.refusal == ""
    assert [(pool["name"], pool["nodes"]) for pool in proposal.pools] == nodes
    assert proposal.emptied == (nodes[0][0],)
    assert ("a quota cannot distinguish them" in proposal.avoided) == avoids


def test_bottlerocket_gets_one_profile() -> None:
    pool = {"machine": "p4d.24xlarge", "nodes": 1, "aws": {"image": "bottlerocket-nvidia"}}
    works = [
        {"name": "a", "kind": "deployment", "pool": "p0", "replicas": 4, "image": "a:1"},
        {"name": "b", "kind": "deployment", "pool": "p0", "replicas": 4, "image": "a:1"},
    ]
    env = aws(pool, workloads=works, mig_strategy="single")
    sizes = (("a", "18Gi"), ("b", "9Gi"))
    given = [demands.Demand.model_validate({"name": name, "gpu_memory": size}) for name, size in sizes]
    found = make_plan(env, demands.needs_of(env, given, ROOT), candidates_of(env, (), price_list(env)))
    assert all(len(group.sharing.layout) <= 1 for group in found.groups)


def test_only_as_many_nodes_as_needed_are_cut_anew() -> None:
    """Of four nodes, two keep the layout for four pods of 3g.20gb; one is enough for three of 2g.10gb."""
    halves = {"kind": "mig", "layout": {"3g.20gb": 2}}
    pool = {"name": "a100", "machine": "g4.p1.40g", "nodes": 4, "sharing": halves}
    work = {"pool": "a100", "slice": "3g.20gb", "kind": "deployment", "replicas": 4, "name": "sim"}
    env = on("embedded", pool, workloads=[work])
    small = demands.Demand.model_validate(
        {"name": "small", "replicas": 3, "gpu_memory": "9Gi", "compute": 0.25}
    )
    found = make_plan(env, demands.needs_of(env, [small], ROOT), candidates_of(env, (), price_list(env)))
    assert shared(found) == [("MIG 2 x 3g.20gb", 2), ("MIG 3 x 2g.10gb + 1 x 1g.10gb", 1)]
    kept, cut = propose(found, env).pools
    assert (kept["name"], kept["nodes"], kept["sharing"]) == ("a100", 2, halves)
    assert (cut["name"], cut["nodes"]) == ("a100-2", 1)


def test_an_elastic_pool_that_is_cut_anew_is_limited_by_what_it_offers_then() -> None:
    """With the operator's strategy single, its own is mixed, so slices have names of their own."""
    pool = {"machine": "p4d.24xlarge", "elastic": {"max": {"nvidia.com/gpu": 16}}}
    work = {"name": "w", "kind": "deployment", "pool": "p0", "replicas": 9, "image": "a:1"}
    env = aws(pool, workloads=[work], mig_strategy="single")
    demand = demands.Demand.model_validate({"name": "w", "gpu_memory": "18Gi", "compute": 0.4})
    found = make_plan(env, demands.needs_of(env, [demand], ROOT), candidates_of(env, (), price_list(env)))
    (declared,) = propose(found, env).pools
    assert declared["sharing"]["strategy"] == "mixed"
    slices = declared["sharing"]["layout"]
    assert declared["elastic"]["max"] == {f"nvidia.com/mig-{name}": 8 * n for name, n in slices.items()}
    assert propose(found, env).refusal == ""


@pytest.mark.parametrize(("adapters", "nodes"), [(1, 1), (8, 1), (9, 2), (16, 2), (32, 4)])
def test_a_node_has_no_more_adapters_than_its_machine(adapters: int, nodes: int) -> None:
    """A p5.48xlarge has 8 GPUs for the 4 pods, and 32 adapters."""
    (group,) = plan_for([Need("a", replicas=4, compute=1.0, efa=adapters)], "p5.48xlarge").groups
    assert group.nodes == nodes


TRAINING: dict[str, Any] = {"name": "w", "kind": "deployment", "pool": "p0", "image": "a:1"}


def test_a_demand_with_adapters_gets_a_pool_that_offers_them_and_others_do_not() -> None:
    env = aws({"machine": "g6e.2xlarge", "nodes": 1}, workloads=[TRAINING])
    given: tuple[dict[str, Any], ...] = ({"name": "w", "efa": 1}, {"name": "plain", "count": 1})
    needs = demands.needs_of(env, [demands.Demand.model_validate(one) for one in given], ROOT)
    found = make_plan(env, needs, candidates_of(env, offers("g6e.2xlarge", "g6e.8xlarge"), price_list(env)))
    proposal = propose(found, env)
    adapters = {pool["machine"]: pool.get("aws") for pool in proposal.pools}
    assert adapters == {"g6e.2xlarge": None, "g6e.8xlarge": {"efa": True}}
    assert proposal.refusal == ""


def test_pods_share_the_huge_pages_that_a_pool_declares() -> None:
    """One node has GPUs for all three; its huge pages are enough for two."""
    pool = {"machine": "p4d.24xlarge", "nodes": 2, "hugepages": "10Gi"}
    work = {**TRAINING, "replicas": 3, "hugepages": "5Gi"}
    assert [group.nodes for group in plan_of(aws(pool, workloads=[work]))[0].groups] == [2]


def test_slices_of_a_pod_share_its_adapters() -> None:
    halves = {"kind": "mig", "layout": {"3g.20gb": 2}}
    pool = {"machine": "p4d.24xlarge", "nodes": 1, "aws": {"efa": True}, "sharing": halves}
    env = aws(pool, workloads=[{**TRAINING, "count": 2, "efa": 4}])
    (need,) = demands.needs_of(env, (), ROOT)
    assert (need.replicas, need.efa) == (2, 2)
    assert [group.nodes for group in plan_of(env)[0].groups] == [1]


def test_an_existing_clusters_nodes_may_have_adapters_that_only_their_owner_knows() -> None:
    pool = {"gpu": {"models": ["H100-SXM"], "count": 8}, "selector": {"pool": "p0"}}
    env = on("existing", pool, workloads=[{**TRAINING, "efa": 32, "count": 8}])
    assert [group.nodes for group in plan_of(env)[0].groups] == [1]


@pytest.mark.parametrize("factor", [None, 0.3, 1.0])
@pytest.mark.parametrize("capacity", ["on_demand", "spot"])
def test_nodes_cost_what_the_bill_says(capacity: str, factor: float | None) -> None:
    pool = {"machine": "g6e.2xlarge", "nodes": 2, "capacity": [capacity]}
    declared = aws(pool, workloads=[{**TRAINING, "replicas": 2}])
    env = declared.model_copy(update={"cost": Cost(spot_factor=factor)})
    (line,) = [one for one in cost.bill(env, price_list(env)).lines if one.item == "pool p0"]
    found, _ = plan_of(env)
    assert found.price == found.now == pytest.approx(line.low)


SPOT = """
machines: [g6e.2xlarge, {machine: g6e.2xlarge, capacity: spot, usd_per_hour: 0.9}]
demands:
- {name: w, interruptible: %s}
- {name: batch, count: 1, interruptible: true}
- {name: plain, count: 1}
"""


@pytest.mark.parametrize(("moves", "nodes"), [("true", (1, 2)), ("false", (2, 1))])
def test_only_what_may_be_interrupted_runs_on_spot(
    tmp_path: Path, moves: str, nodes: tuple[int, int]
) -> None:
    env = aws({"machine": "g6e.4xlarge", "nodes": 1, "capacity": ["spot"]}, workloads=[TRAINING])
    assert [need.interruptible for need in demands.needs_of(env, (), ROOT)] == [True]
    (tmp_path / "d.yaml").write_text(SPOT % moves)
    given = demands.read(tmp_path / "d.yaml")
    needs = demands.needs_of(env, given.demands, tmp_path)
    found = make_plan(env, needs, candidates_of(env, given.machines, price_list(env)))
    proposal = propose(found, env)
    bought = [(pool["name"], pool["nodes"], pool.get("capacity")) for pool in proposal.pools]
    assert sorted(bought, key=str) == [
        ("g6e-2xlarge", nodes[0], None),
        ("g6e-2xlarge-spot", nodes[1], ["spot"]),
    ]
    assert proposal.refusal == ""
    assert found.price == pytest.approx(nodes[1] * 0.9 + nodes[0] * found.candidates[1].price)
    chosen = {one.demand for one in explain.alternatives(found) if one.chosen}
    assert chosen == {need.name for need in needs}
