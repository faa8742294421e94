"""EKS's add-ons and Karpenter's releases: pinned versions, and gates where they are used.

tests/checks holds their values against the chart.
"""

from __future__ import annotations

import pytest

from infra import versions
from infra.model.aws_pools import FIRST_KARPENTER_WITH_CLAIMS
from infra.model.eks_support import EKS
from infra.model.environment import Environment
from infra.model.quantity import numbers
from infra.plan import eks
from tests.plan.aws_environments import SLICED, TABLE, aws

pytestmark = pytest.mark.unit


def test_crds_are_a_release_of_their_own_and_of_the_same_version() -> None:
    both = [eks.karpenter_crd_release(TABLE["sliced"]), eks.karpenter_release(TABLE["sliced"])]
    assert [one.chart.rpartition("/")[2] for one in both] == ["karpenter-crd", "karpenter"]
    assert all(one.chart.startswith("oci://") for one in both)
    assert {(one.version, one.namespace) for one in both} == {("1.14.1", "kube-system")}


def gates(env: Environment) -> dict[str, bool]:
    found: dict[str, bool] = eks.karpenter_values(env)["settings"]["featureGates"]
    return found


@pytest.mark.parametrize(
    ("name", "overlay", "reserved"),
    [
        ("sliced", True, False),
        ("mig", True, True),
        ("by model", False, True),
        ("whole and none", False, False),
        ("managed", False, False),
    ],
)
def test_gates_are_open_where_they_are_used(name: str, overlay: bool, reserved: bool) -> None:
    assert gates(TABLE[name]) == {"nodeOverlay": overlay, "reservedCapacity": reserved}


def test_no_replica_waits_for_a_node_that_is_not_there() -> None:
    assert eks.karpenter_values(TABLE["sliced"])["replicas"] == 2
    assert eks.karpenter_values(aws(SLICED, system={"nodes": 1}))["replicas"] == 1


def test_claims_are_refused_on_elastic_pools_only_below_the_version_that_allocates_them() -> None:
    """A pin from that version on must allow them: docs/adr/0006 says what 1.15.0 does to reservations."""
    assert numbers(versions.KARPENTER) < numbers(FIRST_KARPENTER_WITH_CLAIMS)


def test_every_version_of_eks_has_every_add_on_pinned() -> None:
    for version in EKS:
        add_ons = eks.add_ons(aws(SLICED, version=version))
        assert list(add_ons) == [
            "aws-ebs-csi-driver",
            "coredns",
            "eks-node-monitoring-agent",
            "eks-pod-identity-agent",
            "kube-proxy",
            "vpc-cni",
        ]
        assert all("-eksbuild." in pin for pin in add_ons.values())
        assert add_ons["kube-proxy"].startswith(f"v{version}.")


def test_an_add_on_may_have_another_version() -> None:
    own = {"coredns": "v1.14.3-eksbuild.3", "kube-proxy": "v1.33.9-eksbuild.1"}
    pinned, found = eks.add_ons(aws(SLICED)), eks.add_ons(aws(SLICED, add_ons=own))
    assert found == {**pinned, **own}
    assert list(found) == list(pinned)
