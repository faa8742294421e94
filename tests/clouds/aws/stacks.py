"""The state of a stack on AWS that is to be destroyed."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import load
from tests.stack.destroy.told_state import AWS, BASE, HERE, OUTPUTS, VPC

REGION = load(HERE.root / "Pulumi.aws-dev.yaml").cluster.region  # type: ignore[union-attr]


PROVIDER = AWS.removesuffix("::id")


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def state(region: str = REGION, *more: dict[str, Any]) -> dict[str, Any]:
    provider = {"urn": PROVIDER, "type": "pulumi:providers:aws", "id": "id", "inputs": {"region": region}}
    vpc = {"urn": VPC, "type": "aws:ec2/vpc:Vpc", "custom": True, "id": "vpc-1", "provider": AWS}
    return {"deployment": {"resources": [provider, vpc, *more]}}


def eks(account: str = "42", name: str = "aws-dev") -> dict[str, Any]:
    urn = f"{BASE}aws:eks/cluster:Cluster::c"
    outputs = {**OUTPUTS, "name": name, "arn": f"arn:aws:eks:{REGION}:{account:0>12}:cluster/{name}"}
    return {"urn": urn, "type": "aws:eks/cluster:Cluster", "custom": True, "outputs": outputs}
