"""Requests to a cluster: only kinds that the environment uses."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage import cluster_objects as objects
from infra.config import parse
from tests.components import aws_stacks, openstack_stacks

pytestmark = pytest.mark.unit

FIXED: dict[str, Any] = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 1}
GROWS: dict[str, Any] = {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"nvidia.com/gpu": 2}}}
CLAIMED: dict[str, Any] = {**openstack_stacks.T4, "sharing": {"kind": "dra"}}
OF_DRA = ("resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io")


@pytest.mark.parametrize(
    ("declared", "kinds"),
    [
        (aws_stacks.small(FIXED), ()),
        (aws_stacks.small(GROWS), ("nodepools.karpenter.sh",)),
        (openstack_stacks.small(openstack_stacks.BURST), ()),
        (openstack_stacks.small(CLAIMED, version="1.34"), OF_DRA),
    ],
    ids=["AWS, fixed", "AWS, elastic", "OpenStack, elastic", "OpenStack, by claim"],
)
def test_karpenter_s_kind_is_asked_for_where_karpenter_is(
    declared: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    assert objects.kinds(parse(declared)) == kinds
