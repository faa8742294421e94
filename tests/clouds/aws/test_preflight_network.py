"""An existing VPC in a simulated account: its subnets, addresses, routes, endpoints and tags.

And whether this machine reaches the cluster's endpoint; if not, `up` fails before anything is created.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gpuform.clouds.aws.preflight.endpoint import SUBJECT, ConnectionResult
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from infra.plan.eks import EVERY_ENDPOINT as EVERY
from tests.build.aws_stacks import small, stack
from tests.clouds.findings import expect
from tests.fakes.aws import VPC, Account, FakeMachine, route_table, subnet

pytestmark = pytest.mark.unit

IDS = {one["AvailabilityZone"]: one["SubnetId"] for one in map(subnet, "abc")}
BY_ID = {"vpc": VPC, "subnets": IDS}
BY_TAG = {"vpc": VPC, "subnets": {"tags": {"tier": "private"}, "zones": [*IDS]}}
FIXED = {"name": "a", "machine": "m6i.xlarge", "nodes": 2}
ELASTIC = {"name": "b", "machine": "m6i.xlarge", "elastic": {"max": {"cpu": 400}}}
ACCESS = "internet access of the subnets"
SUBJECTS = (f"VPC {VPC}", "subnets", "addresses of the subnets", ACCESS, "load balancer subnets")
IMAGES = {"al2023": "al2023@v20260801"}
PRIVATE = [{"Key": "tier", "Value": "private"}]


def findings(*pools: dict[str, Any], network: dict[str, Any] = BY_ID, **has: Any) -> dict[str, Finding]:
    return Account(parse(small(*(pools or (FIXED,)), network=network, images=IMAGES)), **has).findings()


@pytest.mark.parametrize("network", [BY_ID, BY_TAG], ids=["by id", "by tag"])
def test_a_good_vpc_passes(network: dict[str, Any]) -> None:
    tags = subnet("a")["Tags"] + PRIVATE
    found = findings(ELASTIC, network=network, subnets=[subnet(letter, Tags=tags) for letter in "abc"])
    assert {found[subject].verdict for subject in SUBJECTS} == {"PASS"}
    assert found[ACCESS].fact == "us-west-2a: nat-1, us-west-2b: nat-1, us-west-2c: nat-1"
    assert found["subnets"].fact == ", ".join(f"{id} in {zone}" for zone, id in IDS.items())


def test_a_vpc_that_the_stack_creates_is_not_checked() -> None:
    assert not {*SUBJECTS} & {*findings(network={"cidr": "10.0.0.0/16", "zones": [*IDS]})}


MODIFY = f"aws ec2 modify-vpc-attribute --vpc-id {VPC} --enable-dns"


@pytest.mark.parametrize(
    ("has", "fact", "fix"),
    [
        ({"vpc_ids": []}, "the account has no such VPC in us-west-2",
         "write another one as cluster.network.vpc"),
        ({"dns": {"enableDnsSupport": False}}, "enableDnsSupport is off, but nodes find the endpoint by name",
         f"{MODIFY}-support --region us-west-2"),
        ({"dns": {"enableDnsHostnames": False}},
         "enableDnsHostnames is off, but nodes find the endpoint by name",
         f"{MODIFY}-hostnames --region us-west-2"),
    ],
)  # fmt: skip
def test_vpc_must_exist_and_resolve_names(has: dict[str, Any], fact: str, fix: str) -> None:
    expect(findings(**has)[f"VPC {VPC}"], "FAIL", fact, fix)


B = IDS["us-west-2b"]


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"VpcId": "vpc-00000000000000000"}, f"{B} is in vpc-00000000000000000"),
        ({"AvailabilityZone": "us-west-2c"}, f"{B} is in us-west-2c, not in us-west-2b"),
        ({"Ipv6Native": True}, f"{B} has no IPv4 addresses"),
        ({"SubnetId": "subnet-00000000"}, f"us-west-2b: {B}: does not exist"),
    ],
)
def test_subnet_must_be_in_its_vpc_and_zone(wrong: dict[str, Any], fact: str) -> None:
    found = findings(subnets=[subnet("a"), subnet("b", **wrong), subnet("c")])["subnets"]
    expect(found, "FAIL", fact, "declare one subnet of the VPC for each zone as cluster.network.subnets")


def test_tags_must_select_one_subnet_per_zone() -> None:
    """A node group in other subnets is replaced: a new tag must not do that."""
    tagged = [subnet("a", Tags=PRIVATE), subnet("a", SubnetId="subnet-00000000", Tags=PRIVATE)]
    found = findings(network=BY_TAG, subnets=[*tagged, subnet("b", Tags=PRIVATE), subnet("c")])["subnets"]
    many, none = (f"us-west-2{zone}: subnet with these tags: " for zone in "ac")
    expect(found, "FAIL", f"{many}subnet-00000000, {IDS['us-west-2a']}; {none}does not exist")


@pytest.mark.parametrize(
    ("free", "has", "verdict", "fact"),
    [
        (5, {}, "FAIL", "fewer than the control plane's 6 are free in us-west-2a, us-west-2b, us-west-2c: "),
        (8, {}, "FAIL", "6 are free in us-west-2a, us-west-2b, us-west-2c, and nodes alone there may take "),
        (100, {}, "PASS",
         "free: 100 in us-west-2a, 100 in us-west-2b, 100 in us-west-2c; nodes full of pods may take 6018"),
        (3, {"entries": []}, "PASS", "free, besides those of the cluster"),  # its nodes have their addresses
        (0, {"entries": []}, "FAIL", "none is free in us-west-2a"),
    ],
)  # fmt: skip
def test_subnets_must_have_free_addresses(free: int, has: dict[str, Any], verdict: str, fact: str) -> None:
    subnets = [subnet(letter, AvailableIpAddressCount=free) for letter in "abc"]
    expect(findings(ELASTIC, subnets=subnets, **has)["addresses of the subnets"], verdict, fact)


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("TransitGatewayId", "tgw-1"),
        ("NetworkInterfaceId", "eni-1"),
        ("GatewayId", "vpce-1"),
        ("VpcPeeringConnectionId", "pcx-1"),
    ],
)
def test_default_route_may_have_any_private_target(key: str, target: str) -> None:
    expect(findings(tables=[route_table(**{key: target})])[ACCESS], "PASS", f"us-west-2a: {target}")


def endpoints(*names: str, **other: Any) -> list[dict[str, Any]]:
    made = {"VpcEndpointType": "Interface", "PrivateDnsEnabled": True, "State": "available", **other}
    s3 = {"VpcEndpointType": "Gateway", "RouteTableIds": ["rtb-1"], "State": "available"}
    listed = [{"ServiceName": f"com.amazonaws.us-west-2.{name}", **made} for name in names]
    return [*listed, {"ServiceName": "com.amazonaws.us-west-2.s3", **s3}]


NAT, NONE = route_table(NatGatewayId="nat-1"), route_table()
DELETED = {**NAT, "Routes": [NAT["Routes"][0], {**NAT["Routes"][1], "State": "blackhole"}]}
PUBLIC = route_table(B, id="rtb-2", GatewayId="igw-1")
NO_ROUTE = "no default route in us-west-2a, us-west-2b, us-west-2c"
LACKS = f"{NO_ROUTE}, and no VPC endpoint for"


@pytest.mark.parametrize(
    ("pool", "tables", "there", "verdict", "fact"),
    [
        (FIXED, [NAT, PUBLIC], [], "FAIL", f"{B} is public (default route: igw-1)..."),  # its own table
        (FIXED, [DELETED], [], "FAIL", f"{LACKS} ec2, ..."),
        (FIXED, [NONE], endpoints(*EVERY), "SKIP",
         f"{NO_ROUTE}: VPC endpoints reach AWS, but images only..."),
        (ELASTIC, [NONE], endpoints(*EVERY), "FAIL", f"{LACKS} iam"),  # Karpenter's instance profiles
        (FIXED, [NONE], endpoints(*EVERY)[1:], "FAIL", f"{LACKS} {EVERY[0]}"),
        (FIXED, [NONE], endpoints(*EVERY, PrivateDnsEnabled=False), "FAIL", f"{LACKS} {', '.join(EVERY)}"),
        (FIXED, [NONE], endpoints(*EVERY, State="pendingAcceptance"), "FAIL", f"{LACKS} {', '.join(EVERY)}"),
        (FIXED, [NONE], endpoints(*EVERY)[:-1], "FAIL", f"{LACKS} s3"),
    ],
)  # fmt: skip
def test_missing_default_route_needs_every_endpoint(
    pool: dict[str, Any], tables: list[Any], there: list[Any], verdict: str, fact: str
) -> None:
    found = findings(pool, tables=tables, endpoints=there)[ACCESS]
    expect(found, verdict, fact.removesuffix("..."))
    assert fact.endswith("...") or found.fact == fact


def test_load_balancers_need_a_tag_and_karpenter_does_not() -> None:
    found = findings(subnets=[subnet(letter, Tags=[]) for letter in "abc"])["load balancer subnets"]
    fix = f"aws ec2 create-tags --resources {' '.join(IDS.values())} --tags "
    fix += "Key=kubernetes.io/role/internal-elb,Value=1 --region us-west-2"
    expect(found, "SKIP", "an internal Service of type LoadBalancer would find no subnet", fix)


ENDPOINT = "https://ABC.gr7.us-west-2.eks.amazonaws.com"
OPEN = ["203.0.113.0/24"]
INSIDE_VPC: dict[str, Any] = {"network": BY_ID}
CONNECTED: dict[str, Any] = {**INSIDE_VPC, "endpoint": {"reached_by": "network"}}
PUBLIC_ENDPOINT: dict[str, Any] = {"endpoint": {"public_cidrs": OPEN}}
LATER = "endpoint.public_cidrs: [{}/32], which a later update removes"
INSIDE = "run it in the VPC, or connected to it (VPN, peering, a proxy in HTTPS_PROXY)"


def endpoint_finding(has: dict[str, Any] | None = None, **cluster: Any) -> Finding:
    env = parse(small(FIXED, images=IMAGES, **cluster))
    return Account(env, **(has or {})).findings()[SUBJECT]


@pytest.mark.parametrize("endpoint", [{}, {"reached_by": "network"}])
def test_a_private_cluster_in_a_new_vpc_is_refused(endpoint: dict[str, str]) -> None:
    """Before the first `up` there is no VPC that a machine could be in; `reached_by` changes nothing."""
    fact = "private, and the stack creates the VPC, to which no machine is connected yet: charts could not"
    fix = f"{LATER.format('203.0.113.7')}; or an existing VPC: cluster.network.vpc"
    expect(endpoint_finding(endpoint=endpoint), "FAIL", fact, fix)


UNKNOWN = "private, and this machine is not known to be in the VPC or connected"


@pytest.mark.parametrize(
    ("machine", "cluster", "verdict", "fact", "fix"),
    [
        (FakeMachine(), INSIDE_VPC, "FAIL", UNKNOWN,
         f"{INSIDE}, with endpoint.reached_by: network; or {LATER.format('203.0.113.7')}"),
        (FakeMachine(inside=("vpc-00000000",)), INSIDE_VPC, "FAIL", UNKNOWN, ""),
        (FakeMachine(inside=("vpc-00000000", VPC)), INSIDE_VPC, "PASS", f"this machine is in {VPC}", ""),
        (FakeMachine(), CONNECTED, "PASS",
         f"declared: this machine is connected to {VPC}; tried once the cluster exists", ""),
        (FakeMachine("203.0.113.7"), PUBLIC_ENDPOINT, "PASS", "open to 203.0.113.0/24; ", ""),
        (FakeMachine("198.51.100.7"), PUBLIC_ENDPOINT, "FAIL",
         "open to 203.0.113.0/24; the public address of this machine is 198.51.100.7",
         LATER.format("198.51.100.7")),
        (FakeMachine(""), PUBLIC_ENDPOINT, "SKIP", "open to 203.0.113.0/24; ", ""),
    ],
)  # fmt: skip
def test_declared_endpoint_is_judged_before_the_cluster_exists(
    machine: FakeMachine, cluster: dict[str, Any], verdict: str, fact: str, fix: str
) -> None:
    expect(endpoint_finding({"machine": machine}, **cluster), verdict, fact, fix)


def test_aws_prod_is_created_from_where_its_comment_says() -> None:
    """It cannot be created from a hosted runner: the file does not list the address."""
    for machine, verdict in ((FakeMachine(), "PASS"), (FakeMachine("198.51.100.7"), "FAIL")):
        account = Account(parse(stack("aws-prod")), machine=machine)
        assert account.findings()[SUBJECT].verdict == verdict


CLOSES = "this machine reaches it by its public address, which this update closes: change nothing else"
SILENT = ConnectionResult("timed out")


@pytest.mark.parametrize(
    ("public", "answer", "cluster", "verdict", "fact"),
    [
        ([], SILENT, CONNECTED, "FAIL", f"{ENDPOINT} does not answer this machine: timed out"),
        ([], ConnectionResult(), INSIDE_VPC, "PASS", f"{ENDPOINT} answers"),
        (OPEN, ConnectionResult(), {}, "PASS", CLOSES),
        (OPEN, ConnectionResult(is_private=True), {}, "PASS", f"{ENDPOINT} answers"),
        ([], SILENT, PUBLIC_ENDPOINT, "PASS", "open to "),  # the update opens it before it uses it
        (OPEN, SILENT, PUBLIC_ENDPOINT, "FAIL", f"{ENDPOINT} does not answer"),
    ],
)
def test_existing_endpoint_is_tried(
    public: list[str], answer: ConnectionResult, cluster: dict[str, Any], verdict: str, fact: str
) -> None:
    """The declaration does not count any more, unless this update opens the endpoint."""
    machine = FakeMachine(answer=answer)
    access = {"endpointPublicAccess": bool(public), "publicAccessCidrs": public}
    authority = {"data": base64.b64encode(b"PEM").decode()}
    made = {"endpoint": ENDPOINT, "certificateAuthority": authority, "resourcesVpcConfig": access}
    expect(endpoint_finding({"entries": [], "cluster": made, "machine": machine}, **cluster), verdict, fact)
    assert machine.tried == [(ENDPOINT, "PEM")]


def test_an_authority_that_is_not_base64_matches_no_endpoint() -> None:
    machine, made = FakeMachine(), {"endpoint": ENDPOINT, "certificateAuthority": {"data": "?"}}
    endpoint_finding({"entries": [], "cluster": made, "machine": machine}, network=BY_ID)
    assert machine.tried == [(ENDPOINT, "")]
