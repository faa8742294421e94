"""The played DRA driver tells of each ready node of a claimed pool once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpuform.rehearse.claims import Driver
from gpuform.rehearse.cluster import Cluster
from gpuform.rehearse.seen import Node
from gpuform.rehearse.watch import Now
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.unit

NODE = Node("n", "uid-n", "p0", "g6.12xlarge", "", "", False, False, {}, 4, {})


class Recorded(Cluster):
    def __init__(self) -> None:
        self.made: list[Mapping[str, Any]] = []

    def apply(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        self.made += manifests


def test_each_ready_node_once() -> None:
    cluster = Recorded()
    env = aws({"machine": "g6.12xlarge", "nodes": 1, "sharing": {"kind": "dra"}}, {"machine": "m6i.xlarge"})
    driver = Driver(cluster, env)
    other = replace(NODE, name="o", uid="uid-o", pool="p1", ready=True)
    driver(Now(1.0, (NODE, other)))
    assert cluster.made == []
    for _ in range(2):
        driver(Now(2.0, (replace(NODE, ready=True), other)))
    (made,) = cluster.made
    assert made["spec"]["nodeName"] == "n"
    assert [device["name"] for device in made["spec"]["devices"]] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-n", "it goes with its node"
