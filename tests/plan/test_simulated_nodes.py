"""Simulated nodes of AWS and Magnum, and how GPUs change their MIG mode on them and on real ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.config import load
from infra.model.base import labels
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.plan import gpu_operator, inventory, nodes
from lab.rehearse.nodes import simulated_nodes
from tests.build.aws_environments import aws
from tests.build.environments import on
from tests.build.openstack_stacks import capi

pytestmark = pytest.mark.unit


SHARED: dict[str, Any] = {
    "machine": "g4dn.xlarge",
    "sharing": {"kind": "time_slicing", "replicas": 3, "rename": True},
}


def work(pods: int, **more: Any) -> dict[str, Any]:
    return {"name": "work", "kind": "deployment", "replicas": pods, "pool": "p0", "image": "x:1", **more}


def bought_machines(*pools: dict[str, Any], workloads: list[dict[str, Any]]) -> dict[str, int]:
    made = nodes.aws_nodes(aws(*pools, workloads=workloads))
    found = [item["metadata"]["labels"] for item in made]
    return Counter(entry[labels.INSTANCE_TYPE] for entry in found if entry[labels.POOL] != "system")


@pytest.mark.parametrize(
    ("pool", "pods", "expected"),
    [
        ({**SHARED, "nodes": 2}, 0, {"g4dn.xlarge": 2}),  # a fixed count stays
        (SHARED, 0, {}),  # no pods request GPUs
        (SHARED, 3, {"g4dn.xlarge": 1}),
        (SHARED, 4, {"g4dn.xlarge": 2}),
        ({**SHARED, "elastic": {"max": {"nvidia.com/gpu.shared": 3}}}, 4, {"g4dn.xlarge": 1}),
        ({"gpu": {"models": ["L40S"], "count": 1}}, 2, {"g6e.xlarge": 2}),
        ({"gpu": {"models": ["L40S"], "count": [1, 4]}}, 2, {"g6e.xlarge": 2}),
    ],
)
def test_as_many_as_the_workloads_need(pool: dict[str, Any], pods: int, expected: dict[str, int]) -> None:
    assert bought_machines(pool, workloads=[work(pods)] if pods else []) == expected


def test_who_says_what_a_gpu_must_have_gets_the_first_pool_that_has_it() -> None:
    needs = {"name": "w", "kind": "pod", "image": "x:1", "gpu": {"memory_gib": 40}}
    large = {"gpu": {"models": ["L40S"], "count": 1}, "taints": [{"key": "large"}]}
    pools = ({"gpu": {"models": ["T4"], "count": 1}}, large)
    assert bought_machines(*pools, workloads=[needs]) == {"g6e.xlarge": 1}


def test_a_larger_machine_where_the_smallest_does_not_take_a_pod() -> None:
    pool = {"gpu": {"models": ["L40S"], "count": 1}}
    assert bought_machines(pool, workloads=[work(1, memory="64Gi", cpu=6)]) == {"g6e.4xlarge": 1}


def test_a_node_with_more_gpus_where_a_pod_wants_them() -> None:
    pool = {"gpu": {"models": ["L40S"], "count": [1, 4]}}
    assert bought_machines(pool, workloads=[work(3, count=2)]) == {"g6e.12xlarge": 2}
    env = aws(pool, workloads=[work(3, count=2)])
    for node in nodes.aws_nodes(env, waiting=True)[2:]:
        assert node["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-count"] == "4"
        assert node["metadata"]["annotations"]["gpuform.io/offers-per-gpu"] == '{"nvidia.com/gpu": 1}'
        assert "gpuform.io/offers" not in node["metadata"]["annotations"]


def test_the_system_has_its_own_and_an_elastic_node_is_let_in_unless_it_waits() -> None:
    env = aws(SHARED, workloads=[work(1)])
    for waiting in (False, True):
        *system, gpu = nodes.aws_nodes(env, waiting)
        assert [item["metadata"]["name"] for item in system] == ["system-0", "system-1"]
        assert system[0]["spec"]["taints"][0]["key"] == labels.CRITICAL_ADDONS
        keys = {taint["key"] for taint in gpu["spec"]["taints"]}
        assert (labels.GPU_NOT_READY in keys) == waiting
        assert (labels.OFFERS in gpu["metadata"]["annotations"]) == waiting
        assert labels.SIM_HOST_DRIVER in gpu["metadata"]["annotations"]


HEAT, CAPI = "magnum.openstack.org/nodegroup", "capi.stackhpc.com/node-group"
ELASTIC = {"min": 1, "max": {"nodes": 3}}


@pytest.mark.parametrize(("work", "count"), [(0, 1), (1, 1), (2, 2), (9, 3)])
def test_a_group_grows_for_the_workloads_within_its_bounds(work: int, count: int) -> None:
    env = capi({"elastic": ELASTIC}, {"nodes": 2}, work=work)
    workers, fixed = ["default-worker-0", "default-worker-1"], ["pool-1-0", "pool-1-1"]
    names = [node["metadata"]["name"] for node in nodes.magnum_nodes(env)]
    assert names == [*workers, *(f"pool-0-{n}" for n in range(count)), *fixed]


@pytest.mark.parametrize(("driver", "key"), [("heat", HEAT), ("capi", CAPI)])
def test_nodes_join_with_their_groups_label_and_none_of_ours(driver: str, key: str) -> None:
    env = capi({"nodes": 1}, driver=driver)
    *_, node = nodes.magnum_nodes(env)
    has = node["metadata"]["labels"]
    assert has[key] == "pool-0"
    assert has[labels.INSTANCE_TYPE] == "g2.5xlarge"
    assert not [item for item in has if item.startswith("gpuform.io/")]
    assert "spec" not in node
    assert labels.GPU_READY not in node["metadata"]["annotations"]
    assert labels.SIM_HOST_DRIVER not in node["metadata"]["annotations"], "the operator brings it"
    *_, proven = nodes.magnum_nodes(env, proven=True)
    assert labels.GPU_READY in proven["metadata"]["annotations"]


def test_default_workers_are_as_large_as_declared_or_said_to_be_unknown() -> None:
    unknown = capi({"nodes": 1})
    text = "cores and memory of default-worker (m2.medium) are not declared"
    assert nodes.unknown_workers(unknown) == text
    own = capi({"nodes": 1}, flavors={"m2.medium": {"vcpu": 2, "memory_gib": 4}})
    assert nodes.unknown_workers(own) == ""
    first, *_ = nodes.magnum_nodes(own)
    sizes = first["metadata"]["annotations"]
    assert (sizes[labels.SIM_CPU], sizes[labels.SIM_MEMORY]) == ("2", "4Gi")


SEVEN = {"sharing": {"kind": "mig", "layout": "all-1g.5gb"}}
P4D = {"machine": "p4d.24xlarge", **SEVEN}
P5 = {"machine": "p5.48xlarge", "sharing": {"kind": "mig", "layout": "all-1g.10gb"}}
FLAVOR = {"machine": "g4.p1.40g", **SEVEN}
A100 = {"gpu": {"models": ["A100-40GB"], "count": 1}, **SEVEN}


def env(kind: str, *pools: dict[str, Any], **cluster: Any) -> Environment:
    if kind == "aws":
        return aws(*({"nodes": 1, **pool} for pool in pools))
    return on(kind, *pools, cluster=cluster)


def reboots(found: Environment) -> bool:
    given = gpu_operator.values(found)["migManager"].get("env")
    assert given in (None, [{"name": "WITH_REBOOT", "value": "true"}])
    return given is not None


BY_DEFAULT = [
    ("aws", P4D, "reboot"),
    ("aws", P5, "reboot"),
    ("openstack", FLAVOR, "reboot"),
    ("existing", P4D, "reboot"),
    ("existing", A100, "gpu"),
    ("hosts", A100, "gpu"),
    ("embedded", P4D, "gpu"),
]


@pytest.mark.parametrize(("kind", "pool", "found"), BY_DEFAULT)
def test_the_default_is_a_reboot_on_machines_of_a_cloud(kind: str, pool: dict[str, Any], found: str) -> None:
    made = env(kind, pool)
    assert made.pools[0].resets_by == found
    assert reboots(made) == (found == "reboot")


@pytest.mark.parametrize(("kind", "pool", "_"), BY_DEFAULT)
@pytest.mark.parametrize("declared", ["gpu", "reboot"])
def test_a_declared_reset_overrides_the_default(
    kind: str, pool: dict[str, Any], _: str, declared: str
) -> None:
    assert reboots(env(kind, {**pool, "reset": declared})) == (declared == "reboot")


def test_pools_without_a_layout() -> None:
    assert reboots(env("aws", {"machine": "p4d.24xlarge"})), "MIG mode may have to be switched off"
    assert gpu_operator.values(env("aws", {"machine": "g4dn.xlarge"}))["migManager"] == {"enabled": False}


VIRTUAL = (
    "pools[0].reset: a hypervisor may refuse to reset the GPUs of a virtual machine, and then the layout "
    "fails; use reboot, unless its nodes are bare metal"
)
BESIDE = (
    "pools[1].reset: pool p0 allows the MIG manager to reboot nodes, a setting for all pools; nodes of this "
    "pool reboot, too, if a reset fails"
)


def test_one_pool_decides_for_the_release_and_a_contradicting_one_gets_a_warning() -> None:
    both = env("existing", P4D, A100)
    assert reboots(both)
    assert warnings(both) == ()
    assert warnings(env("existing", P4D, {**A100, "reset": "gpu"})) == (BESIDE,)


def test_a_reset_that_a_hypervisor_may_refuse_gets_a_warning() -> None:
    assert warnings(env("aws", {**P4D, "reset": "gpu"})) == (VIRTUAL,)
    assert warnings(env("aws", {**P5, "reset": "gpu"})) == (), "Hopper needs no reset"
    assert warnings(env("existing", {**A100, "reset": "gpu"})) == ()


def test_own_hosts_without_a_cluster_have_the_roles_variable() -> None:
    def variable(**pool: Any) -> Any:
        made = inventory.inventory(env("hosts", {**A100, **pool}, kubeconfig=None), {})
        return made["_meta"]["hostvars"]["h0"].get("nvidia_mig_reboot")

    assert [variable(), variable(reset="gpu"), variable(reset="reboot")] == [None, False, True]


def test_simulated_nodes_can_be_reset_where_real_ones_can() -> None:
    def marks(made: Environment) -> list[Any]:
        found = [
            *simulated_nodes(made).rehearsed(made).manifests,
            *(node for p in made.pools for node in nodes.simulated_nodes(made, p)),
        ]
        notes = [item["metadata"].get("annotations", {}) for item in found if item["kind"] == "Node"]
        return [note.get(labels.SIM_GPU_RESET) for note in notes if labels.SIM_GPU in note]

    prod = load(Path(__file__).parents[2] / "Pulumi.aws-prod.yaml")
    assert (reboots(prod), marks(prod)) == (True, ["no", "no"]), "its MIG nodes reboot in a rehearsal"
    on_aws = env("aws", {**P4D, "reset": "gpu"}, {"machine": "g4dn.xlarge"})
    assert marks(on_aws) == ["no", None], "a declaration does not make a virtual machine bare metal"
    for kind, pool, found in BY_DEFAULT:
        assert marks(env(kind, pool)) == ["no" if found == "reboot" else None]
    for kind, pool in (("openstack", FLAVOR), ("existing", A100), ("hosts", A100), ("embedded", P4D)):
        ways = [marks(env(kind, {**pool, "reset": way})) for way in ("gpu", "reboot")]
        assert ways == [[None], ["no"]], kind
