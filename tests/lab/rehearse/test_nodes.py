"""Nodes of an AWS stack on a real control plane: created, kept, changed, deleted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuform.checkout.errors import Failure, InputError
from infra.config import load
from lab.rehearse.nodes import apply_nodes
from tests.conftest import Plane
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.cluster

POOL: dict[str, Any] = {"machine": "g4dn.xlarge", "nodes": 2}


def there(plane: Plane) -> dict[str, dict[str, Any]]:
    items = json.loads(plane.kubectl("get", "nodes", "-l", "gpuform.io/environment=labs", "-o", "json"))[
        "items"
    ]
    return {item["metadata"]["name"]: item for item in items}


def test_they_follow_the_environment(control_plane: Plane) -> None:
    tools, paths = control_plane.toolchain, control_plane.paths
    assert apply_nodes(aws(POOL), paths, tools) == {"system": 2, "p0": 2}
    first = there(control_plane)
    assert set(first) == {"system-0", "system-1", "p0-0", "p0-1"}
    apply_nodes(aws(POOL), paths, tools)
    again = there(control_plane)
    assert {name: one["metadata"]["uid"] for name, one in again.items()} == {
        name: one["metadata"]["uid"] for name, one in first.items()
    }
    tainted = {**POOL, "nodes": 1, "taints": [{"key": "work", "value": "x"}], "labels": {"team": "a"}}
    apply_nodes(aws(tainted), paths, tools)
    now = there(control_plane)
    assert set(now) == {"system-0", "system-1", "p0-0"}
    assert {"key": "work", "value": "x", "effect": "NoSchedule"} in now["p0-0"]["spec"]["taints"]
    assert now["p0-0"]["metadata"]["labels"]["team"] == "a"
    apply_nodes(aws(POOL), paths, tools)
    assert "team" not in there(control_plane)["p0-0"]["metadata"]["labels"]
    control_plane.kubectl("delete", "nodes", *there(control_plane))


def test_another_cluster_and_none(control_plane: Plane, tmp_path: Any) -> None:
    paths = control_plane.paths
    with pytest.raises(InputError, match=r"cluster.kind: embedded has no nodes to simulate"):
        apply_nodes(load(paths.root / "Pulumi.local.yaml"), paths, control_plane.toolchain)
    with pytest.raises(Failure, match="never started; start it with `gpuform local start`"):
        apply_nodes(aws(POOL), replace(paths, state=tmp_path), control_plane.toolchain)
