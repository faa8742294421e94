"""Two stacks on one machine, with pools and nodes of the same names: neither touches the other.

At the end one takes back what was changed by hand; tests/journey/test_drift.py has all kinds of changes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from lab.plane import ControlPlane, stacks_with_planes
from lab.toolchain import Toolchain
from tests.conftest import kubectl_at
from tests.journey.conftest import Checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine]


def small(name: str, replicas: int) -> dict[str, Any]:
    sharing = {"kind": "time_slicing", "replicas": replicas}
    pool = {"name": "shared", "machine": "g4dn.xlarge", "nodes": 1, "sharing": sharing}
    web = {"name": "web", "namespace": "team", "kind": "deployment", "pool": "shared", "image": "web:1"}
    environment = {"name": name, "cluster": {"kind": "embedded"}, "pools": [pool], "workloads": [web]}
    return {"config": {"gpuform:environment": environment}}


def plane_of(paths: Paths, stack: str) -> ControlPlane:
    return ControlPlane(replace(paths, stack=stack), Toolchain(paths))


def node_of(checkout: Checkout, stack: str) -> Any:
    kubeconfig = replace(checkout.paths, stack=stack).kubeconfig
    return json.loads(
        kubectl_at(Toolchain(checkout.paths), kubeconfig, "get", "node", "shared-0", "-o", "json")
    )


@pytest.mark.nightly
def test_each_stack_has_a_control_plane_of_its_own_and_destroy_deletes_it(fresh: Checkout) -> None:
    root: Path = fresh.paths.root
    for name, replicas in (("local", 4), ("two", 2)):
        (root / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(small(name, replicas)))
    fresh.gpuform("up", "local")
    before = node_of(fresh, "local")
    fresh.gpuform("up", "two")
    assert node_of(fresh, "two")["status"]["allocatable"]["nvidia.com/gpu.shared"] == "2"
    assert "two" not in fresh.kubectl("get", "namespaces", "-o", "json")
    after = node_of(fresh, "local")
    assert after["status"]["allocatable"]["nvidia.com/gpu.shared"] == "4"
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    fresh.gpuform("local", "stop", "two")
    assert plane_of(fresh.paths, "local").status().ready
    assert "start it with `gpuform local start two`" in fresh.gpuform("status", "two", code=1).stderr
    done = fresh.gpuform("destroy", "two", "--yes")
    assert done.stdout.endswith("two: destroyed\n")
    assert not plane_of(fresh.paths, "two").has_data
    assert [member for member in plane_of(fresh.paths, "two").status().members if member.running] == []
    assert stacks_with_planes(fresh.paths) == ["local"]
    fresh.kubectl("-n", "team", "scale", "deployment/web", "--replicas=2")
    done = fresh.gpuform("up", "local", "--refresh")
    assert "web: takes back .spec.replicas from kubectl\n" in done.stdout
    assert "\n1 updated, " in done.stdout
    replicas = ("-o", "jsonpath={.spec.replicas}")
    assert fresh.kubectl("-n", "team", "get", "deployment/web", *replicas) == "1"
    fresh.gpuform("local", "stop")
    assert not fresh.running()
