"""Drift on OpenStack: groups within their bounds, nodes that lost labels, and fields that Magnum sets."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.clouds.openstack.changes import CLUSTER, NODE_GROUP, OpenstackDrift
from gpuform.engine import Step
from gpuform.engine.events import Change
from gpuform.stack.drift import nodes
from infra.config import parse
from infra.plan.gpu_operator import driver_version
from infra.plan.sharing import pool_labels

pytestmark = pytest.mark.unit

ENV = parse(
    {
        "name": "research",
        "cluster": {"kind": "openstack", "template": "kubernetes-1.30.2-2", "version": "1.30"},
        "pools": [
            {"name": "whole", "machine": "g2.5xlarge", "nodes": 1},
            {"name": "ci", "machine": "g2.5xlarge", "elastic": {"min": 1, "max": {"nodes": 2}}},
        ],
    }
)
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}


def node(name: str, group: str, **more: Any) -> dict[str, Any]:
    labels = {**pool_labels(ENV, ENV.pool(group)), "magnum.openstack.org/nodegroup": group}
    labels["nvidia.com/cuda.driver-version.full"] = driver_version(ENV)
    return {
        "metadata": {"name": name, "labels": {**labels, **more.get("labels", {})}},
        "spec": {"taints": more.get("taints", [TAINT])},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    }


def drift_rows(*nodes_found: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    return [
        (row.resource, row.path, row.how, row.expected, row.found)
        for row in nodes.check_nodes(ENV, OpenstackDrift(), list(nodes_found))
    ]


def test_all_is_well_within_the_bounds() -> None:
    fixed = node("w", "whole")
    assert drift_rows(fixed, node("a", "ci")) == drift_rows(fixed, node("a", "ci"), node("b", "ci")) == []


def test_a_node_that_lost_its_label_is_still_its_groups() -> None:
    lost = node("w", "whole", labels={"gpuform.io/pool": ""})
    assert drift_rows(lost, node("a", "ci")) == [
        ("Node w", 'metadata.labels["gpuform.io/pool"]', "missing", "whole", "none")
    ]
    bare = node("w", "whole", taints=[])
    path = "spec.taints[nvidia.com/gpu:NoSchedule]"
    assert drift_rows(bare, node("a", "ci")) == [("Node w", path, "missing", "true", "none")]


def test_numbers_outside_of_the_bounds() -> None:
    three = [node(name, "ci") for name in "abc"]
    assert drift_rows(node("w", "whole"), *three) == [("pool ci", "nodes", "added", "1 to 2", "3")]
    assert drift_rows() == [
        ("pool whole", "nodes", "missing", "1", "0"),
        ("pool ci", "nodes", "missing", "1 to 2", "0"),
    ]


@pytest.mark.parametrize(
    ("type_", "name", "path", "expected"),
    [
        (NODE_GROUP, "ci", "nodeCount", True),
        (NODE_GROUP, "whole", "nodeCount", False),
        (NODE_GROUP, "ci", "maxNodeCount", False),
        (NODE_GROUP, "whole", "labels.availability_zone", True),
        (CLUSTER, "research", 'labels["kube.tag"]', True),
        (CLUSTER, "research", "nodeCount", False),
        ("kubernetes:core/v1:ConfigMap", "ci", "labels", False),
    ],
)
def test_fields_that_magnum_or_the_autoscaler_sets(type_: str, name: str, path: str, expected: bool) -> None:
    change = Change({"name": name}, {}, (path,), ())
    step = Step("update", f"urn:pulumi:s::gpuform::{type_}::x", "planned", change)
    assert OpenstackDrift().is_expected(ENV, step, path) is expected
