"""How GPUs change their MIG mode: the default, the release's WITH_REBOOT, warnings, and simulated nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.config import load
from infra.model.base import labels
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.plan import gpu_operator, inventory, nodes
from lab.rehearse.nodes import simulated_nodes
from tests.plan.aws_environments import aws
from tests.plan.environments import on

pytestmark = pytest.mark.unit

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
