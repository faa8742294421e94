"""Whether this machine reaches the cluster's endpoint; if not, `up` fails before anything is created."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gpuform.clouds.aws.preflight.here import Answer
from gpuform.clouds.aws.preflight.reach import SUBJECT
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from tests.clouds.aws.made_up import VPC, Account, Machine, subnet
from tests.components.aws_stacks import small, stack

pytestmark = pytest.mark.unit

FIXED = {"name": "a", "machine": "m6i.xlarge", "nodes": 2}
EXISTING = {"vpc": VPC, "subnets": {one["AvailabilityZone"]: one["SubnetId"] for one in map(subnet, "abc")}}
PUBLIC = {"public_cidrs": ["203.0.113.0/24"]}
CONNECTED = {"reached_by": "network"}
ENDPOINT = "https://ABC.gr7.us-west-2.eks.amazonaws.com"


def look(has: dict[str, Any] | None = None, **cluster: Any) -> Finding:
    env = parse(small(FIXED, images={"al2023": "al2023@v20260801"}, **cluster))
    account = Account(env, **(has or {}))
    return account.checked()[SUBJECT]


@pytest.mark.parametrize("endpoint", [{}, CONNECTED])
def test_a_private_cluster_in_a_new_vpc_is_refused(endpoint: dict[str, str]) -> None:
    """No machine can be in a VPC before the first `up` has created it, whatever is declared."""
    found = look(endpoint=endpoint)
    assert found.verdict == "FAIL"
    assert found.fact == (
        "private, and the stack creates the VPC, to which no machine is connected yet: "
        "charts could not be installed"
    )
    assert found.fix == (
        "endpoint.public_cidrs: [203.0.113.7/32], which a later update removes; "
        "or an existing VPC: cluster.network.vpc"
    )


def test_an_existing_vpc_needs_a_declared_connection() -> None:
    undeclared = look(network=EXISTING)
    assert undeclared.verdict == "FAIL"
    assert undeclared.fact.startswith("private, and this machine is not known to be in the VPC or connected")
    assert undeclared.fix == (
        "run it in the VPC, or connected to it (VPN, peering, a proxy in HTTPS_PROXY), with "
        "endpoint.reached_by: network; or endpoint.public_cidrs: [203.0.113.7/32], "
        "which a later update removes"
    )
    declared = look(network=EXISTING, endpoint=CONNECTED)
    assert (declared.verdict, declared.fact) == (
        "PASS",
        f"declared: this machine is connected to {VPC}; tried once the cluster exists",
    )


def test_an_instance_in_the_vpc_needs_no_declaration() -> None:
    inside = {"here": Machine(inside=("vpc-00000000", VPC))}
    assert look(inside, network=EXISTING).fact == f"this machine is in {VPC}"
    assert look({"here": Machine(inside=("vpc-00000000",))}, network=EXISTING).verdict == "FAIL"


@pytest.mark.parametrize(("at", "verdict"), [("203.0.113.7", "PASS"), ("198.51.100.7", "FAIL"), ("", "SKIP")])
def test_public_networks_and_this_machine(at: str, verdict: str) -> None:
    found = look({"here": Machine(at)}, endpoint=PUBLIC)
    assert found.verdict == verdict
    if verdict == "FAIL":
        assert found.fact == "open to 203.0.113.0/24; the public address of this machine is 198.51.100.7"
        assert "endpoint.public_cidrs: [198.51.100.7/32]" in found.fix


def test_aws_prod_is_created_from_where_its_comment_says() -> None:
    """And not from a hosted runner, whose address is not in the file."""
    for here, verdict in ((Machine(), "PASS"), (Machine("198.51.100.7"), "FAIL")):
        account = Account(parse(stack("aws-prod")), here=here)
        assert account.checked()[SUBJECT].verdict == verdict


def made(public: list[str] | None = None) -> dict[str, Any]:
    """An account with the cluster, private or open to some networks."""
    access = {"endpointPublicAccess": bool(public), "publicAccessCidrs": public or []}
    authority = {"data": base64.b64encode(b"PEM").decode()}
    cluster = {"endpoint": ENDPOINT, "certificateAuthority": authority, "resourcesVpcConfig": access}
    return {"entries": [], "cluster": cluster}


def test_an_existing_endpoint_is_tried() -> None:
    """The declaration does not count any more."""
    here = Machine(answer=Answer("timed out"))
    found = look({**made(), "here": here}, network=EXISTING, endpoint=CONNECTED)
    assert (found.verdict, found.fact) == ("FAIL", f"{ENDPOINT} does not answer this machine: timed out")
    assert here.tried == [(ENDPOINT, "PEM")]
    assert look(made(), network=EXISTING).fact == f"{ENDPOINT} answers"


def test_an_authority_that_is_not_base64_matches_no_endpoint() -> None:
    has = made()
    has["cluster"]["certificateAuthority"]["data"] = "?"
    here = Machine()
    look({**has, "here": here}, network=EXISTING)
    assert here.tried == [(ENDPOINT, "")]


def test_closing_the_public_endpoint_is_announced() -> None:
    found = look(made(["203.0.113.0/24"]))
    assert found.verdict == "PASS"
    assert found.fact == (
        "this machine reaches it by its public address, which this update closes: change nothing else "
        "with it, and run later updates inside the VPC"
    )
    inside = {**made(["203.0.113.0/24"]), "here": Machine(answer=Answer(private=True))}
    assert look(inside).fact == f"{ENDPOINT} answers"


def test_an_endpoint_that_this_update_opens_need_not_answer_before() -> None:
    closed = {**made(), "here": Machine(answer=Answer("timed out"))}
    assert look(closed, endpoint=PUBLIC).verdict == "PASS"
    already = {**made(["203.0.113.0/24"]), "here": Machine(answer=Answer("timed out"))}
    assert look(already, endpoint=PUBLIC).verdict == "FAIL"
