"""The simulated account of a stack in an existing VPC: the declared ids, and no tag of the stack."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.clients.aws.api import client
from infra.config import parse
from infra.plan import node_class
from lab.rehearse.cloud.account import furnish
from tests.components.aws_stacks import small
from tests.components.test_existing_vpc import BY_ID, BY_TAG, IDS, VPC

pytestmark = pytest.mark.tools

ELASTIC = {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 16}}}


@pytest.mark.parametrize("network", [BY_ID, BY_TAG], ids=["by id", "by tag"])
def test_the_subnets_have_the_ids_in_karpenters_class(moto: str, network: dict[str, Any]) -> None:
    """The offline AWS plugin answers for the subnets of tags, and the account has what it answered."""
    from lab.offline.aws.functions import assumed_subnet

    env = parse(small(ELASTIC, network=network))
    furnish(env)
    ec2 = client("ec2", "us-west-2")
    listed = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [VPC]}])["Subnets"]
    ids = {one["AvailabilityZone"]: one["SubnetId"] for one in listed}
    tags = BY_TAG["subnets"]["tags"]  # type: ignore[index]
    assert ids == (IDS if network is BY_ID else {zone: assumed_subnet(VPC, zone, tags) for zone in IDS})
    spec = node_class.ec2_node_class(env, env.pools[0], "role", env.name, ids)["spec"]
    asked = [term["id"] for term in spec["subnetSelectorTerms"]]
    assert sorted(asked) == sorted(ids.values())


def test_discovery_by_tag_finds_no_subnet(moto: str) -> None:
    """As at AWS, where the owner has not tagged them: an EC2NodeClass that selects by tag gets no node."""
    furnish(parse(small(ELASTIC, network=BY_ID)))
    tagged = [{"Name": "tag:karpenter.sh/discovery", "Values": ["*"]}]
    assert client("ec2", "us-west-2").describe_subnets(Filters=tagged)["Subnets"] == []


def test_subnets_of_a_new_vpc_are_found_by_tag(moto: str) -> None:
    furnish(parse(small(ELASTIC)))
    tagged = [{"Name": "tag:karpenter.sh/discovery", "Values": ["labs"]}]
    found = client("ec2", "us-west-2").describe_subnets(Filters=tagged)["Subnets"]
    assert len(found) == 3
    assert not {one["SubnetId"] for one in found} & {*IDS.values()}
