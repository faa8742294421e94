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
ALONE = [{"type": "kubernetes:apps/v1:Deployment", "inputs": META}]
PLAIN = [*ALONE, {"type": "kubernetes:core/v1:Service", "inputs": META}]
COLOURED = [{"type": "gpuform:workloads:BlueGreen", "inputs": {"deployment": META}}]
SERVICE = {"service": {"port": 80}}


def refusals(
    update: str, there: list[dict[str, Any]], own: dict[str, Any], guarded: bool = False
) -> list[str]:
    web = {"name": "web", "namespace": "science", "kind": "deployment", "image": "registry.example.com/web:1"}
    web |= {"pool": "a100", "replicas": 2, "update": {"kind": update}, **own}
    pools = [{"name": "a100", "machine": "g2.5xlarge", "nodes": 3}]
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": pools, "workloads": [web]})
    guards = [{"type": GUARD, "inputs": {"fixed": losses.contents(env)}}] if guarded else []
    return refused(env, {"deployment": {"resources": [*guards, *there]}})


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize(
    ("update", "there", "way"), [("blue_green", PLAIN, "to"), ("rolling", COLOURED, "from")]
)
def test_a_switch_is_refused_also_after_a_failed_one(
    update: str, there: list[dict[str, Any]], way: str, guarded: bool
) -> None:
    fact = f"workloads[0].update: 'web' exists, and no update changes it {way} blue_green"
    remedy = "remove the workload, run `gpuform up`, and declare it again; or give it another name"
    assert refusals(update, there, SERVICE, guarded) == [f"{fact}; {remedy}"]
    assert refusals(update, there, {**SERVICE, "namespace": "art"}) == []


@pytest.mark.parametrize(
    ("update", "there", "own"),
    [
        ("blue_green", COLOURED, SERVICE),
        ("rolling", PLAIN, SERVICE),
        ("blue_green", ALONE, SERVICE),
        ("rolling", COLOURED, {}),
    ],
)
def test_an_update_that_makes_no_second_service_is_not(
    update: str, there: list[dict[str, Any]], own: dict[str, Any]
) -> None:
    assert refusals(update, there, own) == []
