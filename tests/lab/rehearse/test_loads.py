"""The real KEDA and Prometheus, and Karpenter, follow requests that a rehearsal plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.journey.conftest import HERE, Checkout, make_checkout

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.engine]

ENV = """
config:
  gpuform:environment:
    name: local
    cluster: {kind: embedded}
    monitoring: {}
    pools:
      - {name: t4, machine: g2.5xlarge, nodes: 2, sharing: {kind: time_slicing, replicas: 4}}
      - {name: cpu, machine: m6i.xlarge, nodes: 1}
    workloads:
      - name: triton
        kind: inference
        namespace: serving
        pool: t4
        image: tritonserver:1
        scale: {min: 1, max: 8, qps_per_replica: 60}
      - name: rare
        kind: inference
        namespace: serving
        image: vllm:1
        cpu: 0.1
        scale: {min: 0, max: 3, qps_per_replica: 150, query: 'sum(rate(hits{ingress="rare"}[1m]))'}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make_checkout(tmp_path)


def loads(checkout: Checkout, *requests: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    document = json.loads(checkout.gpuform("rehearse", *requests, "--json", patience_s=900).stdout)
    assert (document["failed"], document["troubles"], document["shrink"]) == (False, [], None)
    return document, document["loads"]


def test_400_requests_per_second_start_the_declared_number_and_none_leave_no_pod(checkout: Checkout) -> None:
    (checkout.paths.root / "Pulumi.local.yaml").write_text(ENV)
    output, result = loads(checkout, "local", "--qps", "0,50,400,0")
    assert [item["qps"] for item in result] == [0, 50, 400, 0]
    pods = [{each["name"]: each["pods"] for each in item["workloads"]} for item in result]
    none, some, many = {"triton": 1, "rare": 0}, {"triton": 1, "rare": 1}, {"triton": 7, "rare": 3}
    assert pods == [none, some, many, none]
    cold = result[2]["workloads"][0]["cold"]
    assert list(cold) == ["asked", "created", "running"], "its node was there"
    assert 0 < cold["asked"] <= cold["created"] <= cold["running"]
    assert result[3]["workloads"][0]["cold"] == {}
    assert any(text.startswith("keda:") for text in output["real"])
    assert "triton's cooldown is 10 s instead of 300 s" in output["shortened"]


def test_karpenters_nodes_follow_the_requests(checkout: Checkout) -> None:
    stack = yaml.safe_load((HERE.root / "Pulumi.aws-dev.yaml").read_text())
    env = stack["config"]["gpuform:environment"]
    work = {
        "name": "triton",
        "kind": "inference",
        "namespace": "serving",
        "pool": "g4dn-shared",
        "image": "x:1",
    }
    env["workloads"] = [{**work, "scale": {"min": 1, "max": 8, "qps_per_replica": 60}}]
    (checkout.paths.root / "Pulumi.aws-dev.yaml").write_text(yaml.safe_dump(stack))
    output, (many, none) = loads(checkout, "aws-dev", "--qps", "400,0")
    assert (many["workloads"][0]["pods"], none["workloads"][0]["pods"]) == (7, 1)
    assert many["bought"] == none["removed"] == {"g4dn.xlarge": 2}, "three pods share a GPU"
    assert many["usd_per_hour"] == pytest.approx(none["usd_per_hour"] + 2 * 0.526)
    steps = ["asked", "created", "node requested", "node launched", "node joined", "node ready", "running"]
    cold = many["workloads"][0]["cold"]
    assert list(cold) == steps
    assert sorted(cold.values()) == list(cold.values())
    assert output["usd_per_hour"] == none["usd_per_hour"], "as before the first load"
