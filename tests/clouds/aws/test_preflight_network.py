"""An existing VPC: its subnets, addresses, routes, endpoints and tags, in a simulated account."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.stack.preflight.check import Finding
from infra.config import parse
from infra.plan.network import EVERY
from tests.clouds.aws.made_up import VPC, Account, subnet, table
from tests.components.aws_stacks import small

pytestmark = pytest.mark.unit

IDS = {one["AvailabilityZone"]: one["SubnetId"] for one in map(subnet, "abc")}
BY_ID = {"vpc": VPC, "subnets": IDS}
BY_TAG = {"vpc": VPC, "subnets": {"tags": {"tier": "private"}, "zones": [*IDS]}}
FIXED = {"name": "a", "machine": "m6i.xlarge", "nodes": 2}
ELASTIC = {"name": "b", "machine": "m6i.xlarge", "elastic": {"max": {"cpu": 400}}}
SUBJECTS = (
    *(f"VPC {VPC}", "subnets", "addresses of the subnets", "internet access of the subnets"),
    "load balancer subnets",
)
IMAGES = {"al2023": "al2023@v20260801"}
PRIVATE = [{"Key": "tier", "Value": "private"}]


def look(*pools: dict[str, Any], network: dict[str, Any] = BY_ID, **has: Any) -> dict[str, Finding]:
    return Account(parse(small(*(pools or (FIXED,)), network=network, images=IMAGES)), **has).checked()


@pytest.mark.parametrize("network", [BY_ID, BY_TAG], ids=["by id", "by tag"])
def test_a_good_vpc_passes(network: dict[str, Any]) -> None:
    tags = subnet("a")["Tags"] + PRIVATE
    found = look(ELASTIC, network=network, subnets=[subnet(letter, Tags=tags) for letter in "abc"])
    assert {found[subject].verdict for subject in SUBJECTS} == {"PASS"}
    assert (
        found["internet access of the subnets"].fact
        == "us-west-2a: nat-1, us-west-2b: nat-1, us-west-2c: nat-1"
    )
    assert found["subnets"].fact == ", ".join(f"{id} in {zone}" for zone, id in IDS.items())


def test_a_vpc_that_the_stack_creates_is_not_checked() -> None:
    own = {"cidr": "10.0.0.0/16", "zones": [*IDS]}
    assert not {*SUBJECTS} & {*look(network=own)}


def test_no_such_vpc() -> None:
    found = look(vpcs=[])[f"VPC {VPC}"]
    assert (found.verdict, found.fact) == ("FAIL", "the account has no such VPC in us-west-2")


@pytest.mark.parametrize(
    ("name", "option"),
    [("enableDnsSupport", "--enable-dns-support"), ("enableDnsHostnames", "--enable-dns-hostnames")],
)
def test_a_vpc_without_names(name: str, option: str) -> None:
    found = look(dns={name: False})[f"VPC {VPC}"]
    assert (found.verdict, found.fact) == ("FAIL", f"{name} is off, but nodes find the endpoint by name")
    assert found.fix == f"aws ec2 modify-vpc-attribute --vpc-id {VPC} {option} --region us-west-2"


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"VpcId": "vpc-00000000000000000"}, f"{IDS['us-west-2b']} is in vpc-00000000000000000"),
        ({"AvailabilityZone": "us-west-2c"}, f"{IDS['us-west-2b']} is in us-west-2c, not in us-west-2b"),
        ({"Ipv6Native": True}, f"{IDS['us-west-2b']} has no IPv4 addresses"),
        ({"SubnetId": "subnet-00000000"}, f"us-west-2b: {IDS['us-west-2b']}: does not exist"),
    ],
)
def test_a_subnet_that_is_another(wrong: dict[str, Any], fact: str) -> None:
    found = look(subnets=[subnet("a"), subnet("b", **wrong), subnet("c")])["subnets"]
    assert (found.verdict, found.fact) == ("FAIL", fact)
    assert found.fix == "declare one subnet of the VPC for each zone as cluster.network.subnets"


def test_tags_of_several_subnets_or_of_none() -> None:
    """A node group in other subnets is replaced: a new tag must not do that."""
    tagged = [subnet("a", Tags=PRIVATE), subnet("a", SubnetId="subnet-00000000", Tags=PRIVATE)]
    found = look(network=BY_TAG, subnets=[*tagged, subnet("b", Tags=PRIVATE), subnet("c")])["subnets"]
    assert found.verdict == "FAIL"
    assert found.fact == (
        f"us-west-2a: subnet with these tags: subnet-00000000, {IDS['us-west-2a']}; "
        "us-west-2c: subnet with these tags: does not exist"
    )


def few(number: int) -> list[dict[str, Any]]:
    return [subnet(letter, AvailableIpAddressCount=number) for letter in "abc"]


@pytest.mark.parametrize(
    ("free", "fact"),
    [
        (5, "fewer than the control plane's 6 are free in us-west-2a, us-west-2b, us-west-2c: "),
        (100, "282 are free in us-west-2a, us-west-2b, us-west-2c, and nodes and pods there may take 6018"),
    ],
)
def test_too_few_addresses(free: int, fact: str) -> None:
    found = look(ELASTIC, subnets=few(free))["addresses of the subnets"]
    assert found.verdict == "FAIL"
    assert found.fact.startswith(fact)


@pytest.mark.parametrize(("free", "verdict"), [(3, "PASS"), (0, "FAIL")])
def test_existing_nodes_have_their_addresses(free: int, verdict: str) -> None:
    found = look(ELASTIC, subnets=few(free), entries=[])["addresses of the subnets"]
    assert found.verdict == verdict


@pytest.mark.parametrize(
    "way",
    [
        {"TransitGatewayId": "tgw-1"},
        {"NetworkInterfaceId": "eni-1"},
        {"GatewayId": "vpce-1"},
        {"VpcPeeringConnectionId": "pcx-1"},
    ],
)
def test_default_routes(way: dict[str, str]) -> None:
    found = look(tables=[table(**way)])["internet access of the subnets"]
    assert found.verdict == "PASS"
    assert next(iter(way.values())) in found.fact


def test_a_public_subnet_is_refused() -> None:
    """The subnet has its own table, which counts before the main one."""
    tables = [table(NatGatewayId="nat-1"), table(IDS["us-west-2b"], id="rtb-2", GatewayId="igw-1")]
    found = look(tables=tables)["internet access of the subnets"]
    assert found.verdict == "FAIL"
    assert found.fact.startswith(f"{IDS['us-west-2b']} is public (default route: igw-1)")


def test_a_route_to_a_deleted_gateway_does_not_count() -> None:
    gone = table(NatGatewayId="nat-1")
    gone["Routes"][1]["State"] = "blackhole"
    found = look(tables=[gone])["internet access of the subnets"]
    assert found.verdict == "FAIL"
    assert found.fact.startswith(
        "no default route in us-west-2a, us-west-2b, us-west-2c, and no VPC endpoint for ec2, "
    )


def endpoints(*names: str, **other: Any) -> list[dict[str, Any]]:
    made = {"VpcEndpointType": "Interface", "PrivateDnsEnabled": True, "State": "available", **other}
    s3 = {"VpcEndpointType": "Gateway", "RouteTableIds": ["rtb-1"], "State": "available"}
    listed = [{"ServiceName": f"com.amazonaws.us-west-2.{name}", **made} for name in names]
    return [*listed, {"ServiceName": "com.amazonaws.us-west-2.s3", **s3}]


def test_vpc_endpoints_instead_of_a_default_route() -> None:
    found = look(tables=[table()], endpoints=endpoints(*EVERY))["internet access of the subnets"]
    assert found.verdict == "SKIP"
    assert "images only in ECR" in found.fact


def test_karpenter_also_needs_iam() -> None:
    """Without IAM, Karpenter creates no instance profile."""
    found = look(ELASTIC, tables=[table()], endpoints=endpoints(*EVERY))["internet access of the subnets"]
    assert (found.verdict, found.fact.endswith("and no VPC endpoint for iam")) == ("FAIL", True)


@pytest.mark.parametrize(
    ("there", "lacks"),
    [
        (endpoints(*EVERY)[1:], EVERY[0]),
        (endpoints(*EVERY, PrivateDnsEnabled=False), ", ".join(EVERY)),
        (endpoints(*EVERY, State="pendingAcceptance"), ", ".join(EVERY)),
        (endpoints(*EVERY)[:-1], "s3"),
    ],
)
def test_endpoints_that_are_missing_or_serve_no_node(there: list[dict[str, Any]], lacks: str) -> None:
    found = look(tables=[table()], endpoints=there)["internet access of the subnets"]
    assert (found.verdict, found.fact.partition("no VPC endpoint for ")[2]) == ("FAIL", lacks)


def test_load_balancers_need_a_tag_and_karpenter_does_not() -> None:
    found = look(subnets=[subnet(letter, Tags=[]) for letter in "abc"])["load balancer subnets"]
    assert found.verdict == "SKIP"
    assert "an internal Service of type LoadBalancer would find no subnet" in found.fact
    assert found.fix == (
        f"aws ec2 create-tags --resources {' '.join(IDS.values())} "
        "--tags Key=kubernetes.io/role/internal-elb,Value=1 --region us-west-2"
    )
