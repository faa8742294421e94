"""The preflight against moto: real requests over HTTP, where moto supports them; it creates nothing."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.clients.aws.api import client
from gpuform.clouds.aws.preflight import checks
from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.clouds.aws.preflight.quotas import instances, ours
from gpuform.reports.stack import require_preflight
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from tests.clouds.aws.made_up import ROLES
from tests.components.aws_stacks import small, stack

pytestmark = pytest.mark.tools

REGION = "us-west-2"


def look(environment: dict[str, Any]) -> dict[str, Finding]:
    return {one.subject: one for one in checks(parse(environment), Paths.here(), "labs")}


def test_what_moto_has_is_found_and_what_it_lacks_is_skipped(moto: str) -> None:
    iam = client("iam", REGION)
    for name in ROLES:  # moto's create_service_linked_role uses other names for most of them
        iam.create_role(RoleName=name, Path="/aws-service-role/", AssumeRolePolicyDocument="{}")
    found = look(stack("aws-prod"))
    assert found["credentials"].fact.startswith("account 123456789012 as arn:aws:sts::123456789012:")
    passed = {subject for subject, one in found.items() if one.verdict == "PASS"}
    assert {"credentials", "region us-west-2", "zones", "access to the cluster"} <= passed
    assert {f"machines of pool {name}" for name in ("system", "a100-mig", "h100-training")} <= passed
    assert {f"capacity of pool {name}" for name in ("a100-mig", "l40s-inference", "cpu")} <= passed
    assert {f"role {name}" for name in ROLES} <= passed
    lacks = (
        "quota of P, on-demand",
        "reservations of pool h100-training",
        "Kubernetes 1.36",
        "add-on coredns",
    )
    assert {found[subject].verdict for subject in lacks} == {"SKIP"}
    assert found["image al2023-nvidia"].fact == "AWS has no such image in this region"


def test_what_moto_does_not_have_fails(moto: str) -> None:
    found = look(
        small({"name": "spot", "machine": "g6.xlarge", "elastic": {"max": {"cpu": 8}}, "capacity": ["spot"]})
    )
    assert found["role AWSServiceRoleForEC2Spot"].verdict == "FAIL"


def test_no_region_of_that_name(moto: str) -> None:
    """A region that AWS has, and moto has not."""
    environment = stack("aws-dev")
    environment["cluster"]["region"] = "eusc-de-east-1"
    environment["cluster"]["network"]["zones"] = ["eusc-de-east-1a", "eusc-de-east-1b"]
    environment["cluster"]["admins"] = ["arn:aws-eusc:iam::111122223333:role/gpu-admins"]
    found = look(environment)["region eusc-de-east-1"]
    assert (found.verdict, found.fact) == ("FAIL", "AWS has no such region")


def test_nothing_is_made(moto: str) -> None:
    ec2, eks, iam = client("ec2", REGION), client("eks", REGION), client("iam", REGION)

    def there() -> Any:
        return (
            [vpc["VpcId"] for vpc in ec2.describe_vpcs()["Vpcs"]],
            eks.list_clusters()["clusters"],
            [role["RoleName"] for role in iam.list_roles()["Roles"]],
        )

    before = there()
    look(stack("aws-prod"))
    assert there() == before


def test_running_instances_are_told_apart_by_their_tag(moto: str) -> None:
    ec2 = client("ec2", REGION)
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "gpuform.io/environment", "Value": "labs"}]}]
    asked = {"ImageId": image, "InstanceType": "g6.xlarge"}
    ec2.run_instances(MinCount=2, MaxCount=2, TagSpecifications=tags, **asked)
    others = ec2.run_instances(MinCount=2, MaxCount=2, **asked)["Instances"]
    ec2.stop_instances(InstanceIds=[others[0]["InstanceId"]])
    running = instances(Aws(REGION))
    assert sorted(ours(one, "labs") for one in running) == [False, True, True]


def test_no_credentials(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    found = look(stack("aws-dev"))
    failed = {subject: one for subject, one in found.items() if one.verdict == "FAIL"}
    assert set(failed) == {"credentials"}
    assert "Unable to locate credentials" in failed["credentials"].fact
    assert {one.verdict for subject, one in found.items() if subject != "credentials"} == {"SKIP"}


def test_a_profile_that_is_not_there(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "missing")
    found = look(stack("aws-dev"))["credentials"]
    assert (found.verdict, found.fact) == ("FAIL", "The config profile (missing) could not be found")


def _existing_vpc() -> dict[str, Any]:
    """A VPC with two private subnets and no default route, created by the real API's calls."""
    ec2 = client("ec2", REGION)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    subnets = {
        f"{REGION}{letter}": ec2.create_subnet(
            VpcId=vpc, CidrBlock=f"10.9.{16 * index}.0/20", AvailabilityZone=f"{REGION}{letter}"
        )["Subnet"]["SubnetId"]
        for index, letter in enumerate("ab")
    }
    return {"vpc": vpc, "subnets": subnets}


def _fixed(**cluster: Any) -> dict[str, Any]:
    pool = {"name": "a", "machine": "m6i.xlarge", "nodes": 2}
    return small(pool, images={"al2023": "al2023@v20260801"}, **cluster)


def test_existing_vpc(moto: str) -> None:
    """Attributes, subnets, route tables and endpoints in the format of EC2's answers."""
    network, ec2 = _existing_vpc(), client("ec2", REGION)
    found = look(_fixed(network=network, endpoint={"reached_by": "network"}))
    passed = (f"VPC {network['vpc']}", "subnets", "addresses of the subnets", "endpoint of the cluster")
    assert {found[subject].verdict for subject in passed} == {"PASS"}, found
    assert found["addresses of the subnets"].fact == "free: 4091 in us-west-2a, 4091 in us-west-2b"
    way = found["internet access of the subnets"]
    assert (way.verdict, way.fact.partition(", and ")[0]) == (
        "FAIL",
        "no default route in us-west-2a, us-west-2b",
    )
    tables = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [network["vpc"]]}])
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    first = next(iter(network["subnets"].values()))
    nat = ec2.create_nat_gateway(SubnetId=first, AllocationId=address)["NatGateway"]["NatGatewayId"]
    ec2.create_route(
        RouteTableId=tables["RouteTables"][0]["RouteTableId"],
        DestinationCidrBlock="0.0.0.0/0",
        NatGatewayId=nat,
    )
    way = look(_fixed(network=network))["internet access of the subnets"]
    assert (way.verdict, way.fact) == ("PASS", f"us-west-2a: {nat}, us-west-2b: {nat}")


def test_up_of_a_private_cluster_from_outside_is_refused(moto: str) -> None:
    """The simulated AWS would create everything, and the first chart could not be installed."""
    found = look(_fixed())
    assert found["endpoint of the cluster"].verdict == "FAIL"
    with pytest.raises(Failure, match="checks failed, and nothing was changed"):
        require_preflight("labs", found.values(), Console(file=io.StringIO()))


def test_an_endpoint_that_does_not_answer(moto: str) -> None:
    """moto's clusters have names like real endpoints that lead nowhere: as from outside the VPC."""
    network, eks = _existing_vpc(), client("eks", REGION)
    role = "arn:aws:iam::123456789012:role/x"
    vpc_config = {"subnetIds": list(network["subnets"].values())}
    eks.create_cluster(name="labs", roleArn=role, resourcesVpcConfig=vpc_config)
    found = look(_fixed(network=network, endpoint={"reached_by": "network"}))["endpoint of the cluster"]
    assert found.verdict == "FAIL"
    assert "does not answer this machine: " in found.fact
