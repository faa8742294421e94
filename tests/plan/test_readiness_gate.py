"""The startup taint and the gate that removes it: which nodes have it, what tolerates it, what is checked."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from infra.config import parse
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.allocatable import claimable
from infra.plan import (
    device_plugin,
    dra,
    gpu_operator,
    karpenter,
    node_groups,
    quotas,
    readiness_gate,
    startup,
    workloads,
)
from tests.plan.aws_environments import TABLE, aws
from tests.plan.environments import on

pytestmark = pytest.mark.unit

TAINT = "gpuform.io/gpu-not-ready"
T4 = {"machine": "g2.5xlarge"}
TOLERATION = {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}


def templates(env: Environment) -> list[tuple[bool, dict[str, Any]]]:
    return [
        (bool(pool.gpus), manifest["spec"]["template"])
        for pool in env.pools
        for manifest in karpenter.node_pools(env, pool)
    ]


@pytest.mark.parametrize("env", TABLE.values(), ids=TABLE)
def test_karpenters_nodes_wait_exactly_where_they_have_gpus(env: Environment) -> None:
    for has_gpus, template in templates(env):
        taints = template["spec"].get("startupTaints")
        assert taints == ([{"key": TAINT, "effect": "NoSchedule"}] if has_gpus else None)
        assert ("annotations" in template["metadata"]) == has_gpus
        assert TAINT not in [taint["key"] for taint in template["spec"].get("taints", [])]


@pytest.mark.parametrize("env", TABLE.values(), ids=TABLE)
def test_a_node_promises_what_the_workloads_are_counted_with(env: Environment) -> None:
    for pool in env.pools:
        asked = readiness_gate.pools(env).get(pool.name, {})
        if pool.gpus and not pool.by_karpenter:
            assert asked["offers"] == allocatable.resources(pool)
        for manifest in karpenter.node_pools(env, pool):
            annotations = manifest["spec"]["template"]["metadata"].get("annotations", {})
            each = json.loads(annotations.get("gpuform.io/offers-per-gpu", "{}"))
            promised = json.loads(annotations.get("gpuform.io/offers", "{}"))
            assert bool(each) == (len(pool.gpu_counts) > 1)
            assert "offers" not in asked
            for gpus in pool.gpu_counts:
                of_node = {name: count * gpus for name, count in each.items()} or promised
                assert of_node == (allocatable.resources(pool, gpus) or claimable(pool))


def test_a_managed_groups_nodes_are_born_with_the_taint() -> None:
    env = TABLE["managed"]
    pool = env.pools[0]
    assert {"key": TAINT, "effect": "NO_SCHEDULE"} in node_groups.taints(env, pool)
    assert TAINT not in [taint["key"] for taint in node_groups.taints(env, node_groups.system_pool(env))]
    assert readiness_gate.manifests(env)
    assert TOLERATION in gpu_operator.gpu_tolerations(env)


@pytest.mark.parametrize(
    ("image", "written"),
    [
        ("al2023-nvidia", "nvidia.com/gpu=true:NoSchedule,gpuform.io/gpu-not-ready=:NoSchedule"),
        ("bottlerocket-nvidia", '"gpuform.io/gpu-not-ready" = [":NoSchedule"]'),
    ],
)
def test_a_node_of_an_image_by_its_id_is_told_the_taint_at_boot(image: str, written: str) -> None:
    pool = {"machine": "g4dn.xlarge", "nodes": 1, "zones": ["us-west-2a"], "aws": {"image": image}}
    env = aws(pool)
    told = node_groups.encoded_user_data(
        env, env.pools[0], node_groups.JoinSettings("c", "https://e", "ca", "172.20.0.0/16")
    )
    assert told
    assert written in base64.b64decode(told).decode()


def test_simulated_nodes_wait_for_nobody() -> None:
    env = on("embedded", T4)
    assert readiness_gate.manifests(env) == ()
    assert startup.startup_change(env, env.pools[0]) is None
    assert TOLERATION not in gpu_operator.gpu_tolerations(env)


def test_nodes_that_others_make_carry_the_taint_until_they_are_proven() -> None:
    env = on("existing", T4, {"machine": "m6i.xlarge"})
    gpu, cpu = env.pools
    assert startup.startup_change(env, cpu) is None
    assert startup.startup_change(env, gpu) == {
        "taints": [{"key": TAINT, "effect": "NoSchedule"}],
        "proof": "gpuform.io/gpu-ready",
        "reason": "gpuform.io/gpu-waits-for",
    }
    assert list(readiness_gate.pools(env)) == ["p0"]


@pytest.mark.parametrize("env", TABLE.values(), ids=TABLE)
def test_the_gate_is_there_where_a_node_waits_and_every_operand_gets_in_before(env: Environment) -> None:
    waits = any(pool.gpus for pool in env.pools)
    values = gpu_operator.values(env)
    assert bool(readiness_gate.manifests(env)) == waits
    assert (TOLERATION in values["daemonsets"]["tolerations"]) == waits
    assert (TOLERATION in values["node-feature-discovery"]["worker"]["tolerations"]) == waits
    for part in (values["operator"], *(values["node-feature-discovery"][role] for role in ("gc", "master"))):
        assert TOLERATION not in part["tolerations"]


def test_where_gpus_are_claimed_the_driver_for_them_gets_in_before_and_its_devices_are_the_proof() -> None:
    env = aws({"name": "claimed", "machine": "g6e.12xlarge", "nodes": 1, "sharing": {"kind": "dra"}})
    release = dra.release(env)
    assert release
    assert TOLERATION in release.values["kubeletPlugin"]["tolerations"]
    assert readiness_gate.pools(env)["claimed"]["operands"] == []
    roles = [item for item in readiness_gate.manifests(env) if item["kind"] == "ClusterRole"]
    asked = [rule["resources"] for rule in roles[0]["rules"]]
    assert asked == [["nodes"], ["resourceslices"]]


def test_the_fabrics_device_plugin_gets_in_before() -> None:
    release = device_plugin.efa_release(TABLE["mig"])
    assert release
    assert TOLERATION in release.values["tolerations"]


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
OWNERS: list[tuple[Environment, tuple[str, ...]]] = [
    (TABLE["sliced"], (PLUGIN, VALIDATOR)),
    (TABLE["bottlerocket"], (VALIDATOR,)),
    (
        on("existing", T4),
        ("nvidia-driver-daemonset", "nvidia-container-toolkit-daemonset", PLUGIN, VALIDATOR),
    ),
    (
        on("existing", T4, gpu_operator={"driver": "host"}),
        ("nvidia-container-toolkit-daemonset", PLUGIN, VALIDATOR),
    ),
    (on("existing", T4, gpu_operator={"mode": "device_plugin"}), ("nvidia-device-plugin",)),
]


@pytest.mark.parametrize(("env", "expected"), OWNERS)
def test_it_asks_only_for_operands_that_somebody_runs(env: Environment, expected: tuple[str, ...]) -> None:
    assert readiness_gate.operands(env) == expected


@pytest.mark.parametrize(
    ("pool", "tried"),
    [
        ({"machine": "g4dn.xlarge", "nodes": 1}, True),
        ({"machine": "g4dn.xlarge", "nodes": 1, "sharing": {"kind": "dra"}}, False),
        ({"machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 8}}}, False),
    ],
)
def test_a_pod_tries_a_gpu_except_by_claim_and_on_karpenters_nodes(pool: dict[str, Any], tried: bool) -> None:
    """Karpenter would count the pod, and buy another node for the one that waits."""
    env = aws(pool)
    (asked,) = readiness_gate.pools(env).values()
    assert ("trial" in asked) is tried
    there = {item["metadata"]["name"]: item["metadata"]["labels"] for item in quotas.namespaces(env)}
    assert ("gpuform-trial" in there) is tried
    roles = [entry for entry in readiness_gate.manifests(env) if entry["kind"] == "Role"]
    verbs = {one["metadata"]["namespace"]: one["rules"][0]["verbs"] for one in roles}
    own = {"gpuform-trial": ["create", "delete", "list"]} if tried else {}
    assert verbs == {"gpu-operator": ["list"], **own}
    if tried:
        assert there["gpuform-trial"]["pod-security.kubernetes.io/enforce"] == "restricted"
