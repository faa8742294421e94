"""A separate project: its runs are offline and make nothing at AWS; `recover` asks moto what exists."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.clients.aws import api
from gpuform.clouds import RECOVERIES
from gpuform.engine import Engine, Result
from gpuform.engine.files import EngineFiles
from gpuform.stack.recover import Plan, Stack, UserDecisions, carry_out, find
from lab.toolchain import Toolchain
from tests.engine.conftest import Project as Base

STACK = "labs"
DECLARED = """config:
  gpuform:environment:
    name: labs
    cluster: {kind: existing, kubeconfig: /nowhere}
    pools: [{name: t4, machine: g2.5xlarge, selector: {a: b}}]
"""
PROGRAM = """
import functools
import json
import pulumi
import pulumi_aws as aws

tags = {"tags": {"gpuform.io/environment": "labs"}}
provider = aws.Provider("aws", region="us-west-2", default_tags=tags)
o = pulumi.ResourceOptions(provider=provider)
vpc = aws.ec2.Vpc("net", cidr_block="10.20.0.0/16", tags={"Name": "labs"}, opts=o)
subnets = [
    aws.ec2.Subnet(f"s-{zone}", vpc_id=vpc.id, cidr_block=f"10.20.{number}.0/24",
                   tags={"Name": f"labs-{zone}"}, availability_zone=f"us-west-2{zone}", opts=o)
    for number, zone in enumerate("ab")
]
trust = json.dumps({"Version": "2012-10-17", "Statement": []})
role = aws.iam.Role("role", assume_role_policy=trust, opts=o)
queue = aws.sqs.Queue("queue", name="labs", opts=o)
cluster = aws.eks.Cluster("eks", name="labs", role_arn=role.arn, version="1.34",
                          vpc_config={"subnet_ids": [s.id for s in subnets]}, opts=o)
pulumi.export("vpc", vpc.id)
pulumi.export("queue", queue.url)
pulumi.export("secret", pulumi.Output.secret("hush"))
"""


class Project(Base):
    """A stack without a cluster, of which all runs are offline."""

    @property
    def engine(self) -> Engine:
        return Engine(self.paths, self.toolchain, say=self.said.append, offline=True)

    @property
    def stack(self) -> Stack:
        return Stack(STACK, self.paths, self.engine, RECOVERIES, at_cloud=True)

    def run(self, operation: str) -> Result:
        result: Result = getattr(self.engine, operation)(STACK, on_event=lambda event: None)
        return result

    def find(self, decisions: UserDecisions | None = None, **more: Any) -> Plan:
        return find(self.stack, decisions, **more)

    def carry_out(self, plan: Plan) -> None:
        carry_out(self.stack, plan, self.said.append)

    def state(self) -> dict[str, Any]:
        """The state without the repairs at the start of a run."""
        return self.engine.deployment(self.stack.env, STACK)

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Edit the state file directly: an import by the engine drops pending operations."""
        content = json.loads(self.checkpoint.read_text())
        change(content["checkpoint"]["latest"])
        self.checkpoint.write_text(json.dumps(content))
        self.checkpoint.with_name(self.checkpoint.name + ".attrs").unlink(missing_ok=True)

    def interrupted(self, making: Iterable[str], never_begun: Iterable[str] = ()) -> None:
        """The state of a run that was killed while it created these resources, named as in the program."""

        def change(deployment: dict[str, Any]) -> None:
            pending, kept = [], []
            for one in deployment["resources"]:
                name = one["urn"].rpartition("::")[2]
                if name in making:
                    resource = {key: item for key, item in one.items() if key not in ("id", "outputs")}
                    pending.append({"type": "creating", "resource": resource})
                elif name not in never_begun:
                    kept.append(one)
            deployment |= {"resources": kept, "pending_operations": pending}

        self.edit(change)

    def ids(self) -> dict[str, str]:
        resources = self.state()["deployment"]["resources"]
        return {one["urn"].rpartition("::")[2]: str(one.get("id")) for one in resources}

    @property
    def checkpoint(self) -> Path:
        return EngineFiles(self.paths, offline=True).checkpoint("gpuform", STACK)

    @property
    def file(self) -> Path:
        return self.paths.root / f"Pulumi.{STACK}.yaml"


@pytest.fixture(scope="session")
def _clients() -> Any:
    return functools.cache(api.create_client)


@pytest.fixture(autouse=True)
def _once(_clients: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client is made once for all tests: that takes longer than all their requests."""
    monkeypatch.setattr(api, "create_client", _clients)


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> tuple[Project, bytes]:
    folder = tmp_path_factory.mktemp("recover")
    root = folder / "checkout"
    root.mkdir()
    (root / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\nmain: infra/\n")
    (root / "toolchain").symlink_to(Paths.here().root / "toolchain")
    made = Project(Paths(root, root / ".gpuform", folder / "cache"), toolchain)
    made.program(PROGRAM)
    made.file.write_text(DECLARED)
    made.run("up")
    return made, made.checkpoint.read_bytes()


@pytest.fixture
def project(_made: tuple[Project, bytes]) -> Project:
    made, state = _made
    made.said.clear()
    made.file.write_text(DECLARED)
    made.checkpoint.write_bytes(state)
    made.checkpoint.with_name(made.checkpoint.name + ".attrs").unlink(missing_ok=True)
    return made
