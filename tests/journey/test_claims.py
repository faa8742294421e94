"""A pool with claimed GPUs, beside a time-sliced one: created, used and changed, offline.

charts/dra-driver-sim stands in for NVIDIA's DRA driver; the rest is as in test_aws.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.journey.aws_world import World, world

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

POOL = {"name": "claimed", "machine": "g6.12xlarge", "nodes": 2, "sharing": {"kind": "dra"}}
WORK = {"name": "train", "namespace": "examples", "kind": "deployment", "replicas": 2, "count": 2,
        "pool": "claimed", "image": "tensorflow/tensorflow:2.12.0-gpu"}  # fmt: skip


def add(environment: dict[str, Any]) -> None:
    environment["pools"].append(dict(POOL))
    environment["workloads"].append(dict(WORK))


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("claims"), "aws-dev") as made, made.changed(add):
        made.nodes()
        made.first = made.run("preview"), made.run("up")  # type: ignore[attr-defined]
        yield made


def test_it_is_made_as_planned_and_stays(dev: World) -> None:
    planned, made = dev.first  # type: ignore[attr-defined]
    assert set(made.changes) == {"create"}
    assert planned.changes == made.changes
    assert not dev.run("up").changed
    assert not dev.run("refresh").changed


def test_karpenter_keeps_its_number_and_the_device_plugin_is_off_its_nodes(dev: World) -> None:
    spec = json.loads(dev.kubectl("get", "nodepool", "claimed-static", "-o", "json"))["spec"]
    assert (spec["replicas"], spec["limits"]) == (2, {"nodes": "3"})
    values = json.loads(dev.kubectl("get", "cm", "-n", "kube-system", "karpenter-values", "-o", "json"))
    assert json.loads(values["data"]["values"])["settings"]["featureGates"]["staticCapacity"] is True
    for item in json.loads(dev.kubectl("get", "nodes", "-l", "gpuform.io/pool=claimed", "-o", "json"))[
        "items"
    ]:
        offered = {
            key: n for key, n in item["status"]["allocatable"].items() if key.startswith("nvidia.com/")
        }
        assert set(offered.values()) <= {"0"}, offered
        assert item["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-L4", "discovery runs there"


def test_status_says_what_is_had_by_claim(dev: World) -> None:
    said = json.loads(dev.checkout.gpuform("status", "aws-dev", "--json").stdout)
    pools = {pool["name"]: pool for pool in said["pools"]}
    assert pools["claimed"]["sharing"] == "dra"
    nodes = pools["claimed"]["nodes"]
    assert [node["allocatable"].get("gpu.nvidia.com") for node in nodes] == [4, 4]
    assert sum(node["used"].get("gpu.nvidia.com", 0) for node in nodes) == 4
    table = dev.checkout.gpuform("status", "aws-dev").stdout
    assert "dra: whole GPUs by claim" in " ".join(table.split())


def test_another_number_moves_the_workload_to_another_template(dev: World) -> None:
    def one(environment: dict[str, Any]) -> None:
        environment["workloads"][-1]["count"] = 1

    with dev.changed(one):
        steps = {(step.op, step.name) for step in dev.run("up").steps}
        assert ("create", "workloads-examples-train-1-gpu") in steps
        assert ("update", "workloads-examples-train") in steps
        assert ("delete", "workloads-examples-train-2-gpu") in steps
        found = json.loads(dev.kubectl("get", "resourceclaimtemplates", "-n", "examples", "-o", "json"))[
            "items"
        ]
        assert [item["metadata"]["name"] for item in found] == ["train-1-gpu"]
        assert not dev.run("preview").changed


def test_it_ends_with_a_destroy(dev: World) -> None:
    ended = dev.run("destroy")
    assert set(ended.changes) == {"delete"}
    assert dev.kubectl("get", "deployments,resourceclaims", "-n", "examples", "-o", "name") == ""
