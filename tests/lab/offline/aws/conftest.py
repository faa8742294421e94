from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, Result
from gpuform.provider import handler as protocol
from gpuform.provider.handler import Call, CheckResult, DiffResult
from lab.offline.aws.outputs import Settings
from lab.offline.aws.provider import ROWS
from lab.offline.aws.resource import OfflineResource
from lab.toolchain import Toolchain
from tests.engine.conftest import Project

CLUSTER = """
import json
import pulumi
import pulumi_aws as aws

config = pulumi.Config()
cidr = config.get("cidr") or "10.20.0.0/16"
provider = aws.Provider("aws", region="eu-central-1", default_tags={"tags": {"owner": "ml"}})
o = pulumi.ResourceOptions(provider=provider)
account = aws.get_caller_identity_output(opts=pulumi.InvokeOptions(provider=provider))
vpc = aws.ec2.Vpc("net", cidr_block=cidr, tags={"Name": "net"}, opts=o)
subnets = [
    aws.ec2.Subnet(f"s-{zone}", vpc_id=vpc.id, cidr_block=cidr.replace(".0.0/16", f".{number}.0/24"),
                   availability_zone=f"eu-central-1{zone}", opts=o)
    for number, zone in enumerate("ab")
]
trust = json.dumps({"Version": "2012-10-17", "Statement": []})
role = aws.iam.Role("role", assume_role_policy=trust, opts=o)
cluster = aws.eks.Cluster("eks", name="tried", role_arn=role.arn, version="1.33",
                          vpc_config={"subnet_ids": [s.id for s in subnets]}, opts=o)
template = aws.ec2.LaunchTemplate("lt", image_id="ami-0123456789abcdef0", opts=o)
nodes = aws.eks.NodeGroup(
    "nodes", cluster_name=cluster.name, node_role_arn=role.arn, subnet_ids=[s.id for s in subnets],
    scaling_config={"min_size": 1, "max_size": 2, "desired_size": 1},
    launch_template={"id": template.id, "version": template.latest_version.apply(str)}, opts=o)
for key in ("endpoint", "arn", "identities", "certificate_authority", "vpc_config"):
    pulumi.export(key, getattr(cluster, key))
pulumi.export("account", account.account_id)
pulumi.export("vpc", vpc.id)
pulumi.export("tags", vpc.tags_all)
pulumi.export("name", role.name)
"""


class Offline(Project):
    def configure(self, **config: str) -> None:
        lines = [f"  tried:{key}: '{value}'" for key, value in config.items()]
        self.stack_file("\n".join(["config:", *lines]) + "\n" if lines else "config: {}\n")

    def up(self, **config: str) -> Result:
        self.configure(**config)
        return self.engine.up()

    @property
    def engine(self) -> Engine:
        return Engine(self.paths, self.toolchain, say=self.said.append, offline=True)


@pytest.fixture
def project(tmp_path: Path, toolchain: Toolchain) -> Offline:
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
    made = Offline(Paths(root, root / ".gpuform", tmp_path / "cache"), toolchain)
    made.program(CLUSTER)
    made.configure()
    return made


def touched(result: Result) -> set[tuple[str, str]]:
    return {(step.op, step.name) for step in result.steps if step.type != "pulumi:pulumi:Stack"}


SETTINGS = Settings("eu-central-1", {"owner": "ml"})


def call(token: str, *, preview: bool = False) -> Call:
    return Call(
        f"urn:pulumi:s::p::{token}::x", token, "x", protocol.Engine(), asyncio.Event(), preview=preview
    )


def handler(token: str, settings: Settings = SETTINGS) -> OfflineResource:
    return OfflineResource(ROWS[token], settings)


def check(token: str, inputs: dict[str, Any]) -> CheckResult:
    return asyncio.run(handler(token).check(call(token), {}, inputs))


def make(token: str, inputs: dict[str, Any], *, preview: bool = False) -> tuple[str, dict[str, Any]]:
    checked = check(token, inputs)
    assert not checked.failures
    return asyncio.run(handler(token).create(call(token, preview=preview), checked.inputs))


def diff(token: str, old: dict[str, Any], new: dict[str, Any], settings: Settings = SETTINGS) -> DiffResult:
    before = check(token, old).inputs
    after = asyncio.run(handler(token).check(call(token), before, new)).inputs
    id, outputs = asyncio.run(handler(token).create(call(token), before))
    return asyncio.run(handler(token, settings).diff(call(token), id, before, outputs, after))
