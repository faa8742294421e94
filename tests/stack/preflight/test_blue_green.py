"""A workload to or from ``blue_green`` is refused before anything changes."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.base.guard_names import GUARD
from infra.plan import losses
from tests.clouds.findings import refused

pytestmark = pytest.mark.unit

META = {"metadata": {"namespace": "science", "name": "web"}}
PLAIN = {"type": "kubernetes:apps/v1:Deployment", "inputs": META}
COLOURED = {"type": "gpuform:workloads:BlueGreen", "inputs": {"deployment": META}}


def refusals(update: str, there: dict[str, Any], namespace: str = "science") -> list[str]:
    web = {"name": "web", "namespace": namespace, "kind": "deployment", "image": "registry.example.com/web:1"}
    web |= {"pool": "a100", "replicas": 2, "service": {"port": 80}, "update": {"kind": update}}
    pools = [{"name": "a100", "machine": "g2.5xlarge", "nodes": 3}]
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": pools, "workloads": [web]})
    guard = {"type": GUARD, "inputs": {"fixed": losses.contents(env)}}
    return refused(env, {"deployment": {"resources": [guard, there]}})


@pytest.mark.parametrize(
    ("update", "there", "way"), [("blue_green", PLAIN, "to"), ("rolling", COLOURED, "from")]
)
def test_a_switch_is_refused_also_after_a_failed_one(update: str, there: dict[str, Any], way: str) -> None:
    fact = f"workloads[0].update: 'web' exists, and no update changes it {way} blue_green"
    remedy = "remove the workload, run `gpuform up`, and declare it again; or give it another name"
    assert refusals(update, there) == [f"{fact}; {remedy}"]
    assert refusals(update, there, "art") == []


@pytest.mark.parametrize(("update", "there"), [("blue_green", COLOURED), ("rolling", PLAIN)])
def test_an_update_in_the_same_way_is_not(update: str, there: dict[str, Any]) -> None:
    assert refusals(update, there) == []
