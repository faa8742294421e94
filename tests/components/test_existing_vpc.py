"""A cluster in an existing VPC: what the program registers, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
import yaml

from components.network import ExistingVpc
from infra.config import parse, price_list
from infra.model.aws.network import ExistingNetwork
from infra.plan import cost
from infra.plan.render import render
from tests.components.aws_stacks import changed, small, stack
from tests.components.recording import Recorder, record

pytestmark = pytest.mark.unit

VPC = "vpc-0123456789abcdef0"
IDS = {f"us-west-2{letter}": f"subnet-0123456789abcde{letter}0" for letter in "abc"}
BY_ID = {"vpc": VPC, "subnets": IDS}
BY_TAG = {"vpc": VPC, "subnets": {"tags": {"tier": "private", "team": "gpu"}, "zones": list(IDS)}}
GPU = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 1, "zones": ["us-west-2b"]}
NETWORK_TYPES = (
    *("aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/natGateway:NatGateway", "aws:ec2/eip:Eip"),
    *("aws:ec2/routeTable:RouteTable", "aws:ec2/route:Route", "aws:ec2/vpcEndpoint:VpcEndpoint"),
    *("aws:ec2/internetGateway:InternetGateway", "aws:ec2/routeTableAssociation:RouteTableAssociation"),
)


@pytest.fixture(scope="module", params=[BY_ID, BY_TAG], ids=["by id", "by tag"])
def existing(request: pytest.FixtureRequest) -> tuple[Recorder, dict[str, str]]:
    """The program of aws-prod in an existing VPC, and the subnets that it must use."""
    recorded = record(changed(stack("aws-prod"), network=request.param))
    subnets = IDS if request.param is BY_ID else {zone: f"subnet-of-{zone}-gpu-private-{VPC}" for zone in IDS}
    return recorded, subnets


def test_nothing_in_the_vpc_is_created_or_tagged(existing: tuple[Recorder, dict[str, str]]) -> None:
    recorded, _ = existing
    assert not [resource for kind in NETWORK_TYPES for resource in recorded.of(kind)]
    assert recorded.one("aws:ec2/tag:Tag").inputs["resourceId"] == "sg-cluster"


def test_everything_uses_its_subnets(existing: tuple[Recorder, dict[str, str]]) -> None:
    recorded, subnets = existing
    assert recorded.one("aws:eks/cluster:Cluster").inputs["vpcConfig"]["subnetIds"] == list(subnets.values())
    groups = {group.name: group.inputs["subnetIds"] for group in recorded.of("aws:eks/nodeGroup:NodeGroup")}
    assert groups == {"system-system": list(subnets.values()), "mng-a100-mig": [subnets["us-west-2a"]]}


def test_karpenter_finds_them_by_id(existing: tuple[Recorder, dict[str, str]]) -> None:
    """The owner need not tag them, and a subnet of another VPC with the same tags is not used."""
    recorded, subnets = existing
    classes = recorded.of("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass")
    assert classes
    for node_class in classes:
        assert node_class.inputs["spec"]["subnetSelectorTerms"] == [{"id": id} for id in subnets.values()]


def test_tags_are_looked_up_in_the_vpc_and_zone_by_zone() -> None:
    recorded = record(small(GPU, network=BY_TAG))
    lookups = [call.args["filters"] for call in recorded.calls if call.token.endswith(":getSubnets")]
    assert len(lookups) == 3
    for filters, zone in zip(sorted(lookups, key=str), IDS, strict=True):
        assert {filter_["name"]: filter_["values"] for filter_ in filters} == {
            "vpc-id": [VPC],
            "availability-zone": [zone],
            "tag:team": ["gpu"],
            "tag:tier": ["private"],
        }


@pytest.mark.parametrize(
    ("ids", "fact"), [([], "no subnet has"), (["subnet-b", "subnet-a"], "subnet-a, subnet-b have")]
)
def test_tags_of_no_subnet_or_of_several_are_refused(ids: list[str], fact: str) -> None:
    vpc = ExistingVpc.__new__(ExistingVpc)
    vpc._network = ExistingNetwork.model_validate(BY_TAG)
    with pytest.raises(pulumi.RunError) as caught:
        vpc._single_id("us-west-2a", ids)
    assert str(caught.value) == (
        f"cluster.network.subnets.tags: in us-west-2a of {VPC} {fact} these tags; "
        "name each zone's subnet by its id"
    )


@pytest.mark.parametrize(
    ("network", "ids"), [(BY_ID, list(IDS.values())), (BY_TAG, [f"{{subnet of {zone}}}" for zone in IDS])]
)
def test_what_is_rendered(network: dict[str, Any], ids: list[str]) -> None:
    """Ids that only AWS knows are in braces."""
    files = render(parse(changed(stack("aws-prod"), network=network)))
    declared = yaml.safe_load(files["network.yaml"])
    assert declared["vpc"] == VPC
    assert declared["endpoints"] == []
    assert {"cidr", "nat"}.isdisjoint(declared)
    terms = [
        document["spec"]["subnetSelectorTerms"]
        for document in yaml.safe_load_all(files["karpenter.yaml"])
        if document.get("kind") == "EC2NodeClass"
    ]
    assert terms
    assert {str(term) for term in terms} == {str([{"id": id} for id in ids])}


def test_its_gateways_and_endpoints_are_not_in_the_bill() -> None:
    env = parse(small(GPU, network=BY_ID))
    lines = {line.item for line in cost.bill(env, price_list(env)).lines}
    assert "control plane" in lines
    assert {"NAT gateways", "VPC endpoints"}.isdisjoint(lines)
