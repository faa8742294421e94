"""A state with a resource for each simulated node becomes one that the present program leaves as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine.checkpoint import repair
from infra.config import parse
from infra.plan.nodes import simulated_nodes
from tests.build.aws_stacks import stack
from tests.fakes.recorder import record_once

pytestmark = pytest.mark.unit

LOCAL = stack("local")
BASE = "urn:pulumi:local::gpuform::"
PARENT = f"{BASE}gpuform:platform:NodePools::pools"
KUBERNETES = f"{BASE}gpuform:cluster:EmbeddedCluster$pulumi:providers:kubernetes::local-kubernetes"
PROVIDER = f"{BASE}pulumi:providers:gpuform::default"
KUBECONFIG = record_once(LOCAL).of("gpuform:nodes:SimulatedNodes")[0].inputs["kubeconfig"]


def resource(urn: str, **more: Any) -> dict[str, Any]:
    return {"urn": urn, "type": urn.split("::")[2].rpartition("$")[2], "custom": True, "id": "1", **more}


def former_nodes() -> list[dict[str, Any]]:
    """As the version before wrote them."""
    env = parse(LOCAL)
    manifests = [node for pool in env.pools for node in simulated_nodes(env, pool)]
    for node in manifests:
        node["metadata"]["annotations"]["pulumi.com/patchForce"] = "true"
    return [
        resource(
            f"{BASE}gpuform:platform:NodePools$kubernetes:core/v1:Node::pools-{node['metadata']['name']}",
            **{"inputs": node, "parent": PARENT, "provider": f"{KUBERNETES}::1"},
        )
        for node in manifests
    ]


def state(*more: dict[str, Any]) -> dict[str, Any]:
    kubernetes = resource(KUBERNETES, inputs={"kubeconfig": KUBECONFIG})
    return {"resources": [kubernetes, resource(PARENT, custom=False), *former_nodes(), *more]}


def repaired(folder: Path, deployment: dict[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """What was said, and the resources afterwards."""
    file = folder / "local.json"
    file.write_text(json.dumps({"checkpoint": {"latest": deployment}}))
    said = repair(file, "local")
    assert repair(file, "local") == []
    return said, json.loads(file.read_text())["checkpoint"]["latest"]["resources"]


def test_the_pools_of_a_former_state_are_those_that_the_program_declares(tmp_path: Path) -> None:
    said, found = repaired(tmp_path, state())
    assert said == ["9 simulated nodes have one resource per pool now; no node was changed"]
    declared = record_once(LOCAL).of("gpuform:nodes:SimulatedNodes")
    pools = {item["urn"].rpartition("::")[2]: item for item in found if "SimulatedNodes" in item["type"]}
    assert {item.name for item in declared} == {*pools}
    for item in declared:
        inputs = {key: value for key, value in item.inputs.items() if value is not None}
        combined = pools[item.name]
        assert combined["inputs"] == combined["outputs"] == inputs
        types = "gpuform:platform:NodePools$gpuform:nodes:SimulatedNodes"
        assert (combined["urn"], combined["parent"]) == (f"{BASE}{types}::{item.name}", PARENT)
    assert not [item for item in found if item["type"] == "kubernetes:core/v1:Node"]


@pytest.mark.parametrize("has_provider", [True, False])
def test_everything_in_the_state_comes_after_what_it_needs(has_provider: bool, tmp_path: Path) -> None:
    nodes = [node["urn"] for node in former_nodes()]
    release = f"{BASE}kubernetes:helm.sh/v3:Release::release"
    later = [resource(PROVIDER)] if has_provider else []
    later.append(resource(release, dependencies=nodes, propertyDependencies={"values": nodes[:2]}))
    _, found = repaired(tmp_path, state(*later))
    assert [item["urn"] for item in found].count(PROVIDER) == 1
    seen: set[str] = set()
    for item in found:
        of_provider = item.get("provider", "").rpartition("::")[0]
        needed = {*item.get("dependencies", ()), item.get("parent", ""), of_provider} - {""}
        assert needed <= seen, item["urn"]
        seen.add(item["urn"])
    pools = [item["urn"] for item in found if "SimulatedNodes" in item["type"]]
    assert (found[-1]["urn"], found[-1]["dependencies"]) == (release, pools)
    assert found[-1]["propertyDependencies"] == {"values": pools[:1]}, "the first two nodes are of one pool"


def test_a_node_that_is_still_being_created_is_left_to_recover(tmp_path: Path) -> None:
    *nodes, last = former_nodes()
    pending = [{"resource": last, "type": "creating"}]
    deployment = {"resources": [resource(PARENT, custom=False), *nodes], "pending_operations": pending}
    assert repaired(tmp_path, deployment) == ([], deployment["resources"])
