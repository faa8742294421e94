"""Whatever a run waits for has a limit: the resource's own, or one that its provider is known to have."""

from __future__ import annotations

from configparser import ConfigParser
from typing import Any

import pytest
import yaml

from gpuform.provider.nodes import inputs, joining
from tests.components.aws_stacks import ROOT, small, stack
from tests.components.recording import Recorded, record

pytestmark = pytest.mark.unit

STACKS = ("local", "aws-dev", "aws-prod", "openstack-dev", "onprem-dev")
EXPLICIT = {
    "aws:eks/addon:Addon",
    "aws:eks/cluster:Cluster",
    "aws:eks/nodeGroup:NodeGroup",
    "kubernetes:apps/v1:Deployment",
    "kubernetes:core/v1:Pod",
    "openstack:containerinfra/cluster:Cluster",
    "openstack:containerinfra/nodeGroup:NodeGroup",
}
"""What is waited for until it works: minutes, or as long as its nodes need."""
BY_INPUT = {"kubernetes:helm.sh/v3:Release"}
"""``timeout``, in seconds."""
OWN_TYPES = {
    *("gpuform:nodes:GpuOperatorRemoval", "gpuform:nodes:MigLayout", "gpuform:nodes:PoolNodes"),
    "gpuform:workloads:BlueGreen",
    *("gpuform:queues:KueueRemoval", "gpuform:workloads:ScalingRemoval"),
}
"""Have a limit in their inputs, or a default one (``gpuform/provider``)."""
BY_TASK = {"gpuform:hosts:HostConfiguration"}
"""Ansible: each task of each host."""
NOT_AWAITED = ("pulumi:", "gpuform:", "kubernetes:")
"""Components, and objects that are there with the API server's answer; a Service waits for ten minutes at
most (pulumi-kubernetes, ``provider/pkg/await``)."""
AWS_TYPES = {
    *("cloudwatch", "ec2/eip", "ec2/internetGateway", "ec2/launchTemplate", "ec2/natGateway"),
    *("ec2/placementGroup", "ec2/route", "ec2/securityGroup", "ec2/subnet", "ec2/tag", "ec2/vpc"),
    *("eks/access", "eks/podIdentityAssociation", "iam", "kms", "sqs", "vpc/securityGroupIngressRule"),
}
"""Resources of AWS that its provider waits for by its own limits: 40 minutes or less (its documentation)."""


def declared(name: str) -> dict[str, Any]:
    environment = stack(name)
    if environment["cluster"]["kind"] == "hosts":
        environment["cluster"]["kubeconfig"] = "/nowhere"
    return environment


def limits(resource: Recorded) -> tuple[str, str, str]:
    """Its own limits of a create, an update and a delete; empty where it has none."""
    timeouts = resource.request.customTimeouts
    return timeouts.create, timeouts.update, timeouts.delete


def has_provider_limit(kind: str) -> bool:
    return kind.startswith("aws:") and any(kind.startswith(f"aws:{prefix}") for prefix in AWS_TYPES)


@pytest.mark.parametrize("name", STACKS)
def test_everything_that_is_waited_for_has_a_limit(name: str) -> None:
    for resource in record(declared(name)).resources:
        if resource.type in EXPLICIT:
            create, update, delete = limits(resource)
            assert create, resource
            assert update, resource
            assert delete or not resource.type.startswith(("aws:", "openstack:")), resource
        elif resource.type in BY_INPUT:
            assert resource.inputs["timeout"] > 0, resource
        else:
            kind = resource.type
            known = kind in OWN_TYPES | BY_TASK or kind.startswith(NOT_AWAITED) or has_provider_limit(kind)
            assert known, f"{kind}: add it to one of the lists above"


def test_our_own_resources_have_a_limit_without_a_declaration() -> None:
    assert (inputs.TIMEOUT_S, joining.TIMEOUT_S) == (600, 900)


def test_a_task_on_a_host_ends() -> None:
    config = ConfigParser()
    config.read(ROOT / "ansible/ansible.cfg")
    longest = [
        seconds
        for file in (ROOT / "ansible/roles").glob("*/defaults/main.yml")
        for key, seconds in yaml.safe_load(file.read_text()).items()
        if key.endswith("_timeout")
    ]
    assert config.getint("defaults", "task_timeout") > max(longest) > 0


@pytest.mark.parametrize(("nodes", "update"), [(1, "60m"), (2, "60m"), (3, "90m"), (16, "480m")])
def test_a_group_that_is_updated_node_by_node_has_time_for_each(nodes: int, update: str) -> None:
    """EKS evicts the pods of one node after another, each for up to 15 minutes; the provider's own limit is
    60 minutes for the whole group."""
    pool = {"name": "a100", "machine": "p4d.24xlarge", "nodes": nodes}
    groups = {group.name: limits(group) for group in record(small(pool)).of("aws:eks/nodeGroup:NodeGroup")}
    assert groups["mng-a100"] == ("60m", update, update)


def test_stacks_of_aws_have_all_three() -> None:
    recorded = record(stack("aws-prod"))
    assert limits(recorded.one("aws:eks/cluster:Cluster")) == ("45m", "120m", "45m")
    assert {limits(resource) for resource in recorded.of("aws:eks/addon:Addon")} == {("20m", "20m", "40m")}
