"""Clients of AWS: their endpoints, and how errors of AWS are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.clients.aws.api import AwsError, create_client, translate_errors

pytestmark = pytest.mark.tools


@pytest.fixture
def ec2(moto: str) -> Any:
    return create_client("ec2", "us-west-2")


def test_asks_the_endpoint_of_the_environment(ec2: Any) -> None:
    with translate_errors("aws ec2 describe-vpcs"):
        found = ec2.describe_vpcs()["Vpcs"]
    assert [vpc["IsDefault"] for vpc in found] == [True]


def test_an_error_of_aws_keeps_its_code(ec2: Any) -> None:
    said = r"aws ec2 describe-vpcs: InvalidVpcID.NotFound: .*vpc-0"
    with pytest.raises(AwsError, match=said) as raised, translate_errors("aws ec2 describe-vpcs"):
        ec2.describe_vpcs(VpcIds=["vpc-0"])
    assert raised.value.code == "InvalidVpcID.NotFound"


def test_no_credentials(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with (
        pytest.raises(Failure, match=r"AWS credentials: .*; set AWS_PROFILE"),
        translate_errors("aws sts get-caller-identity"),
    ):
        create_client("sts", "us-west-2").get_caller_identity()


def test_missing_answers(monkeypatch: pytest.MonkeyPatch, moto: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Failure, match="Could not connect"), translate_errors("aws ec2 describe-vpcs"):
        create_client("ec2", "us-west-2").describe_vpcs()


def test_an_answer_that_is_none_of_aws(monkeypatch: pytest.MonkeyPatch, moto: str) -> None:
    """A response of a proxy, or of moto for an unknown call: a page in HTML."""
    said = r"aws ec2 describe-capacity-reservations: is not a response from AWS: .*; check the network"
    with pytest.raises(Failure, match=said), translate_errors("aws ec2 describe-capacity-reservations"):
        create_client("ec2", "us-west-2").describe_capacity_reservations()


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(Failure, match=r"The config profile \(missing\) could not be found; .*AWS_PROFILE"):
        create_client("ec2", "us-west-2")
