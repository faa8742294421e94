"""Guarded resources under the real engine, offline: created, updated in place, refused, replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, EngineFailure
from lab.toolchain import Toolchain
from tests.build import aws_stacks, openstack_stacks
from tests.build.openstack_stacks import BURST, T4

pytestmark = [pytest.mark.engine, pytest.mark.nightly]

PROGRAM = """
import pulumi
from infra.config import parse
from infra.program.{} import cluster

cluster(parse(pulumi.Config("tried").require_object("environment")))
"""


class GuardedStack:
    def __init__(self, root: Path, toolchain: Toolchain, cloud: str) -> None:
        self.root, self.cloud = root, cloud
        (root / "infra").mkdir(parents=True)
        (root / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
        (root / "infra" / "__main__.py").write_text(PROGRAM.format(cloud))
        self.engine = Engine(Paths(root, root / ".gpuform", root / "cache"), toolchain, offline=True)

    def write(self, environment: dict[str, Any]) -> None:
        config = {"config": {"tried:environment": environment}}
        (self.root / "Pulumi.local.yaml").write_text(json.dumps(config))

    def cloud_resources(self) -> dict[str, dict[str, Any]]:
        """Id and inputs by name, without secrets: each run encrypts them anew."""
        return {
            resource["urn"].rpartition("::")[2]: {
                "id": resource["id"],
                **{key: item for key, item in resource["inputs"].items() if "ciphertext" not in str(item)},
            }
            for resource in self.engine.export()["deployment"]["resources"]
            if resource["type"].startswith(f"{self.cloud}:")
        }

    def refusal(self, run: Any) -> str:
        """What a refused run prints; it must not change any resource of the cloud."""
        before = self.cloud_resources()
        with pytest.raises(EngineFailure) as caught:
            run()
        assert self.cloud_resources() == before
        return json.dumps([*caught.value.result.errors, str(caught.value)], ensure_ascii=False)


def test_a_cluster_at_openstack_is_replaced_with_its_groups_once_that_is_allowed(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    """Groups alone: tests/openstack/test_stack.py."""
    stack = GuardedStack(tmp_path / "checkout", toolchain, "openstack")
    stack.write(openstack_stacks.small(T4, BURST))
    stack.engine.up()
    labels = {"boot_volume_size": 40}
    stack.write(openstack_stacks.small(T4, BURST, labels=labels))
    assert "cluster.labels.boot_volume_size: unset cannot become" in stack.refusal(stack.engine.up)

    stack.write(openstack_stacks.small(T4, BURST, labels=labels, allow_replace=True))
    replaced = {(step.op, step.name) for step in stack.engine.up().steps}
    for name in ("research-cluster", "groups-gpu-t4", "groups-burst"):
        assert {("delete-replaced", name), ("create-replacement", name)} <= replaced
    stack.write(openstack_stacks.small(T4, BURST, labels=labels))
    assert not stack.engine.up().changed


FIXED = {"name": "fixed", "machine": "g4dn.xlarge", "nodes": 1}


def test_a_cluster_at_aws_is_lost_only_by_its_name(tmp_path: Path, toolchain: Toolchain) -> None:
    """Protected, so that plain Pulumi does not delete it either; what is acknowledged takes one run."""
    stack = GuardedStack(tmp_path / "checkout", toolchain, "aws")
    stack.write(aws_stacks.small(FIXED))
    stack.engine.up()
    assert not stack.engine.up().changed

    stack.write(aws_stacks.small({**FIXED, "name": "other"}))
    message = stack.refusal(stack.engine.up)
    assert "pool fixed is deleted, and what it holds is not known: the cluster cannot be read" in message
    assert "run 'gpuform up local --acknowledge fixed'" in message

    stack.write({**aws_stacks.small(FIXED), "name": "lab"})
    for run in (stack.engine.preview, stack.engine.up):
        assert 'cluster labs is replaced (name: \\"labs\\" cannot become \\"lab\\")' in stack.refusal(run)
    stack.engine.up(acknowledged=["labs"])
    assert {name for name in stack.cloud_resources() if name.endswith("-cluster")} == {"lab-cluster"}
    assert not stack.engine.up().changed

    with pytest.raises(EngineFailure):
        stack.engine._operate("destroy", "local", ["--yes", "--skip-preview"], None)
    assert {"lab-cluster", "lab-secrets", "network-vpc"} <= set(stack.cloud_resources())
    stack.engine.destroy()
    assert not stack.engine.export()["deployment"].get("resources")
