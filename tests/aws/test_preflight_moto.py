"""The preflight against moto: real requests over HTTP, where moto supports them; it creates nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.aws.api import client
from gpuform.finding import Finding
from gpuform.preflight import findings
from gpuform.preflight.aws import Aws
from gpuform.preflight.usage import instances, ours
from infra.config import parse
from tests.aws.made_up import ROLES
from tests.components.aws_stacks import small, stack

pytestmark = pytest.mark.tools

REGION = "us-west-2"


def look(environment: dict[str, Any]) -> dict[str, Finding]:
    return {one.subject: one for one in findings(parse(environment))}


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
    environment = stack("aws-dev")
    environment["cluster"]["region"] = "eu-nowhere-9"
    environment["cluster"]["network"]["zones"] = ["eu-nowhere-9a", "eu-nowhere-9b"]
    found = look(environment)["region eu-nowhere-9"]
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
