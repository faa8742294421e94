"""The startup taint and the gate that lifts it: who has it, who tolerates it, and what the gate looks at."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.config import parse
from infra.model.environment import Environment
from infra.plan import efa, gpu_operator, karpenter, node_groups, readiness_gate, sharing, workloads
from tests.plan.aws_environments import TABLE, aws

pytestmark = pytest.mark.unit

TAINT = "gpuform.io/gpu-not-ready"
TOLERATION = {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}


def templates(env: Environment) -> list[tuple[bool, dict[str, Any]]]:
    """Whether the pool grows by nodes with GPUs, and the template of its nodes, for each NodePool."""
    return [
        (bool(pool.gpus) and pool.elastic is not None, manifest["spec"]["template"])
        for pool in env.pools
        for manifest in karpenter.node_pools(env, pool)
    ]


@pytest.mark.parametrize("env", TABLE.values(), ids=TABLE)
def test_elastic_nodes_wait_exactly_where_they_have_gpus(env: Environment) -> None:
    for grows, template in templates(env):
        taints = template["spec"].get("startupTaints")
        assert taints == ([{"key": TAINT, "effect": "NoSchedule"}] if grows else None)
        assert ("annotations" in template["metadata"]) == grows
        assert TAINT not in [taint["key"] for taint in template["spec"].get("taints", [])]


@pytest.mark.parametrize("env", TABLE.values(), ids=TABLE)
def test_a_node_promises_what_the_workloads_are_counted_with(env: Environment) -> None:
    for pool in env.pools:
        for manifest in karpenter.node_pools(env, pool):
            annotations = manifest["spec"]["template"]["metadata"].get("annotations", {})
            each = json.loads(annotations.get("gpuform.io/offers-per-gpu", "{}"))
            promised = json.loads(annotations.get("gpuform.io/offers", "{}"))
            assert bool(each) == (len(pool.gpu_counts) > 1)
            for gpus in pool.gpu_counts:
                of_node = {name: count * gpus for name, count in each.items()} or promised
                assert of_node == sharing.offered(env, pool, gpus)


def test_a_managed_group_keeps_its_taints() -> None:
    env = TABLE["managed"]
    assert TAINT not in [taint["key"] for taint in node_groups.taints(env, env.pools[0])]
    assert readiness_gate.manifests(env) == ()
    assert TOLERATION not in gpu_operator.gpu_tolerations(env)


@pytest.mark.parametrize("env", TABLE.values(), ids=TABLE)
def test_the_gate_is_there_where_a_node_waits_and_every_operand_gets_in_before(env: Environment) -> None:
    waits = any(grows for grows, _ in templates(env))
    values = gpu_operator.values(env)
    assert bool(readiness_gate.manifests(env)) == waits
    assert (TOLERATION in values["daemonsets"]["tolerations"]) == waits
    assert (TOLERATION in values["node-feature-discovery"]["worker"]["tolerations"]) == waits
    for part in (values["operator"], *(values["node-feature-discovery"][role] for role in ("gc", "master"))):
        assert TOLERATION not in part["tolerations"]


def test_the_fabrics_device_plugin_gets_in_before() -> None:
    release = efa.release(TABLE["mig"])
    assert release
    assert TOLERATION in release.values["tolerations"]
    fixed = aws({"machine": "p4d.24xlarge", "nodes": 1, "zones": ["us-west-2a"], "aws": {"efa": True}})
    release = efa.release(fixed)
    assert release
    assert TOLERATION not in release.values["tolerations"]


def test_no_workload_gets_in_before() -> None:
    pools = [pool.name for pool in TABLE["whole and none"].pools]
    declared = [{"name": name, "kind": "pod", "pool": name, "image": "x:1"} for name in pools]
    env = parse({**TABLE["whole and none"].resolved(), "workloads": declared})
    manifests = workloads.manifests(env)
    assert len(manifests) == 2
    for manifest in manifests:
        for toleration in manifest["spec"].get("tolerations", []):
            assert toleration["key"] not in ("", TAINT)


PLUGIN, VALIDATOR = "nvidia-device-plugin-daemonset", "nvidia-operator-validator"
BY_US = {"name": "e", "cluster": {"kind": "existing", "kubeconfig": "k"}}
POOLS = [{"name": "p", "machine": "g2.5xlarge", "selector": {"a": "b"}}]
OWNERS: list[tuple[Environment, tuple[str, ...]]] = [
    (TABLE["sliced"], (PLUGIN, VALIDATOR)),
    (TABLE["bottlerocket"], (VALIDATOR,)),
    (
        parse({**BY_US, "pools": POOLS}),
        ("nvidia-driver-daemonset", "nvidia-container-toolkit-daemonset", PLUGIN, VALIDATOR),
    ),
    (
        parse({**BY_US, "pools": POOLS, "gpu_operator": {"driver": "host"}}),
        ("nvidia-container-toolkit-daemonset", PLUGIN, VALIDATOR),
    ),
]


@pytest.mark.parametrize(("env", "expected"), OWNERS)
def test_it_asks_only_for_operands_that_somebody_runs(env: Environment, expected: tuple[str, ...]) -> None:
    assert readiness_gate.operands(env) == expected


def test_its_pod_runs_the_program_that_the_config_map_holds() -> None:
    by_kind = {manifest["kind"]: manifest for manifest in readiness_gate.manifests(TABLE["sliced"])}
    assert len(by_kind) == 7
    program = by_kind["ConfigMap"]
    (text,) = program["data"].values()
    compile(text, "program", "exec")
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "program", "configMap": {"name": program["metadata"]["name"]}}]
    (container,) = pod["containers"]
    (file,) = program["data"]
    assert container["command"] == ["python3", "-I", "-B", f"/gate/{file}", PLUGIN, VALIDATOR]
    assert pod["tolerations"] == gpu_operator.values(TABLE["sliced"])["operator"]["tolerations"]
    assert TOLERATION not in pod["tolerations"]
