"""The pool keeper in the program: after the pools, so it is deleted before their labels are removed."""

from __future__ import annotations

import pytest

from tests.components.aws_stacks import waits_for
from tests.components.openstack_stacks import BURST, T4, small
from tests.components.recording import Recorder, record

pytestmark = pytest.mark.unit

RBAC = "kubernetes:rbac.authorization.k8s.io/v1"
POOL_NODES = "gpuform:nodes:PoolNodes"
MIG = {"name": "a100", "machine": "g4.p1.40g", "nodes": 1, "sharing": {"kind": "mig", "layout": "all-1g.5gb"}}


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return record(small(T4, BURST, MIG))


def test_it_comes_after_the_pools_with_its_rights_and_goes_before_them(recorded: Recorder) -> None:
    (keeper,) = [
        one for one in recorded.of("kubernetes:apps/v1:Deployment") if one.name == "pool-keeper-deployment"
    ]
    needed = waits_for(recorded, keeper)
    pools = {f"{POOL_NODES} {one.name}" for one in recorded.of(POOL_NODES)}
    assert len(pools) == 3
    assert pools <= needed
    assert {
        f"{RBAC}:ClusterRoleBinding pool-keeper-cluster-role-binding",
        f"{RBAC}:RoleBinding pool-keeper-role-binding",
        "kubernetes:core/v1:ConfigMap pool-keeper-program",
    } <= needed
    # Not for the operator's release, which takes minutes: nodes join meanwhile.
    assert not {one for one in needed if one.startswith("kubernetes:helm.sh/v3:Release")}


def test_nodes_are_waited_for_and_their_labels_are_both_ones(recorded: Recorder) -> None:
    found = {one.name: one.inputs for one in recorded.of(POOL_NODES)}
    assert {name: inputs["joining"]["nodes"] for name, inputs in found.items()} == {
        f"pools-{T4['name']}": T4["nodes"],
        f"pools-{BURST['name']}": BURST["elastic"]["min"],
        "pools-a100": 1,
    }
    assert {inputs["selector"] for inputs in found.values()} == {
        f"magnum.openstack.org/nodegroup={pool['name']}" for pool in (T4, BURST, MIG)
    }
    assert len({inputs["manager"] for inputs in found.values()}) == 3
    layouts = {one.name: one.inputs["kept"] for one in recorded.of("gpuform:nodes:MigLayout")}
    assert layouts == {"mig-burst": True, "mig-a100": True}


def test_a_layout_has_more_time_where_nodes_reboot() -> None:
    def limit(**more: object) -> object:
        (one,) = record(small({**MIG, **more})).of("gpuform:nodes:MigLayout")
        return one.inputs.get("timeoutSeconds")

    assert limit() == limit(relayout={"in_use": "refuse"}) == 1800
    assert limit(relayout={"timeout_seconds": 60}) == 60
    assert limit(reset="gpu") is None, "the resource's own"
