"""Nodes of an AWS stack on a real control plane: created, kept, changed, deleted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure, InputError
from infra.config import load
from lab.rehearse.nodes import apply_nodes
from tests.build.aws_environments import aws
from tests.conftest import Plane

pytestmark = pytest.mark.cluster

POOL: dict[str, Any] = {"machine": "g4dn.xlarge", "nodes": 2}


def live_nodes(plane: Plane) -> dict[str, dict[str, Any]]:
    listed = json.loads(plane.kubectl("get", "nodes", "-l", "gpuform.io/environment=labs", "-o", "json"))
    return {item["metadata"]["name"]: item for item in listed["items"]}


def test_nodes_follow_the_environment(control_plane: Plane) -> None:
    tools, paths, uids = control_plane.toolchain, control_plane.paths, []
    for _ in range(2):
        assert apply_nodes(aws(POOL), paths, tools) == {"system": 2, "p0": 2}
        uids.append({name: node["metadata"]["uid"] for name, node in live_nodes(control_plane).items()})
    assert set(uids[0]) == {"system-0", "system-1", "p0-0", "p0-1"}
    assert uids[0] == uids[1]
    tainted = {**POOL, "nodes": 1, "taints": [{"key": "work", "value": "x"}], "labels": {"team": "a"}}
    apply_nodes(aws(tainted), paths, tools)
    now = live_nodes(control_plane)
    assert set(now) == {"system-0", "system-1", "p0-0"}
    assert {"key": "work", "value": "x", "effect": "NoSchedule"} in now["p0-0"]["spec"]["taints"]
    assert now["p0-0"]["metadata"]["labels"]["team"] == "a"
    apply_nodes(aws(POOL), paths, tools)
    assert "team" not in live_nodes(control_plane)["p0-0"]["metadata"]["labels"]
    control_plane.kubectl("delete", "nodes", *live_nodes(control_plane))


def test_nodes_need_a_cloud_and_a_control_plane(control_plane: Plane, tmp_path: Path) -> None:
    paths = control_plane.paths
    with pytest.raises(InputError, match=r"cluster.kind: embedded has no nodes to simulate"):
        apply_nodes(load(paths.root / "Pulumi.local.yaml"), paths, control_plane.toolchain)
    with pytest.raises(Failure, match="never started; start it with `gpuform local start`"):
        apply_nodes(aws(POOL), replace(paths, state=tmp_path), control_plane.toolchain)
