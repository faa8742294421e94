"""Objects of the programs in the cluster: the gate of new nodes, the pool keeper and the health loop."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from infra.config import parse
from infra.incluster import actions, reporting
from infra.incluster import health as health_loop
from infra.incluster import pool_keeper as program
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.allocatable import claimable
from infra.plan import (
    device_plugin,
    dra,
    eks,
    gpu_operator,
    health,
    karpenter,
    magnum,
    node_groups,
    pool_keeper,
    quotas,
    readiness_gate,
    sharing,
    startup,
    workloads,
)
from tests.build.aws_environments import TABLE, aws
from tests.build.aws_stacks import small
from tests.build.environments import declared, on
from tests.incluster.live_clusters import RESEARCH as ENV

pytestmark = pytest.mark.unit


TAINT = "gpuform.io/gpu-not-ready"
T4 = {"machine": "g2.5xlarge"}
TOLERATION = {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize("env", TABLE.values(), ids=TABLE)
def test_karpenters_nodes_wait_exactly_where_they_have_gpus(env: Environment) -> None:
    for pool in env.pools:
        for manifest in karpenter.node_pools(env, pool):
            template = manifest["spec"]["template"]
            taints = template["spec"].get("startupTaints")
            assert taints == ([{"key": TAINT, "effect": "NoSchedule"}] if pool.gpus else None)
            assert ("annotations" in template["metadata"]) == bool(pool.gpus)
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


def test_simulated_nodes_wait_for_no_other() -> None:
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
TOOLKIT = "nvidia-container-toolkit-daemonset"
OWNERS: list[tuple[Environment, tuple[str, ...]]] = [
    (TABLE["sliced"], (PLUGIN, VALIDATOR)),
    (TABLE["bottlerocket"], (VALIDATOR,)),
    (on("existing", T4), ("nvidia-driver-daemonset", TOOLKIT, PLUGIN, VALIDATOR)),
    (on("existing", T4, gpu_operator={"driver": "host"}), (TOOLKIT, PLUGIN, VALIDATOR)),
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


A100 = {"name": "a100", "machine": "p4d.24xlarge", "sharing": {"kind": "mig", "layout": "all-1g.5gb"}}
EXISTING = declared("existing", A100)
THEIRS = declared("existing", {"machine": "g4dn.xlarge"}, gpu_operator={"mode": "existing"})


def test_pools_with_nodes_that_join_without_something_are_kept() -> None:
    for env in TABLE.values():
        cut = [pool.name for pool in env.pools if pool.cuts and not pool.by_karpenter]
        assert [pool.name for pool in pool_keeper.kept_pools(env)] == (cut if env.has_mig_manager else [])
        assert bool(pool_keeper.manifests(env)) == bool(pool_keeper.kept_pools(env))
        assert [pool_keeper.field_manager(env, pool) for pool in env.pools] == [None] * len(env.pools)
        assert [pool_keeper.awaited_nodes(env, pool) for pool in env.pools] == [None] * len(env.pools)
    assert pool_keeper.kept_pools(ENV) == ENV.pools
    assert len({pool_keeper.field_manager(ENV, pool) for pool in ENV.pools}) == len(ENV.pools)


def test_a_node_that_joins_an_existing_cluster_lacks_everything() -> None:
    env = parse(EXISTING)
    (own,), (pool,) = pool_keeper.pools(env).values(), env.pools
    assert own["selector"] == {"pool": "p0"}
    assert own["labels"] == sharing.pool_labels(env, pool)
    assert own["taints"] == sharing.pool_taints(env, pool)
    assert [taint["key"] for taint in own["startup"]["taints"]] == [labels.GPU_NOT_READY]
    assert own["layout"] == {"config": "all-1g.5gb"}
    assert (own["joined_within"], own["manager"]) == (3600, pool_keeper.field_manager(env, pool))
    assert pool_keeper.awaited_nodes(env, pool) is None


@pytest.mark.parametrize("declared", [EXISTING, THEIRS], ids=["ours", "the cluster's operator"])
def test_its_pod_and_its_program_are_in_one_namespace(declared: dict[str, object]) -> None:
    found = pool_keeper.manifests(parse(declared))
    spaces = {item["kind"]: item["metadata"].get("namespace") for item in found if item["kind"] != "Role"}
    assert spaces["ConfigMap"] == spaces["Deployment"] == spaces["ServiceAccount"]


def test_it_gives_what_the_program_gives() -> None:
    """Different values would make each undo the other's."""
    told = pool_keeper.pools(ENV)
    for pool in ENV.pools:
        own = told[pool.name]
        assert own["labels"] == sharing.pool_labels(ENV, pool)
        assert program.ENVIRONMENT in own["labels"]  # else a node would never be done
        assert own["taints"] == sharing.pool_taints(ENV, pool)
        waits = startup.startup_change(ENV, pool)
        assert waits
        assert own["startup"] == {key: waits[key] for key in ("taints", "proof")}
        assert own["selector"] == magnum.selector(ENV, pool)
        assert own["manager"] == pool_keeper.field_manager(ENV, pool)
    assert told["gpu-a100"]["layout"] == {"config": "3g.20gb-2x2g.10gb"}
    assert "layout" not in told["gpu-t4"]


def test_as_many_nodes_are_waited_for_as_are_always_there() -> None:
    elastic, fixed = (pool_keeper.awaited_nodes(ENV, pool) for pool in ENV.pools)
    assert elastic
    assert fixed
    assert (elastic["nodes"], fixed["nodes"]) == (1, 1)
    assert "openstack coe nodegroup show research gpu-a100" in fixed["look"]


def test_a_layout_is_not_given_where_nothing_cuts_gpus() -> None:
    alone = {"mode": "device_plugin"}
    pool = {"name": "a100", "machine": "g4.p1.40g", "nodes": 1}
    env = parse({**ENV.resolved(), "gpu_operator": alone, "pools": [pool]})
    assert "layout" not in pool_keeper.pools(env)["a100"]


def test_the_program_and_the_plan_mean_the_same_keys() -> None:
    assert (program.ENVIRONMENT, program.POOL, program.LAYOUT, program.MIG_CONFIG, program.MIG_DEFAULT) == (
        labels.ENVIRONMENT,
        labels.POOL,
        labels.MIG_LAYOUT,
        labels.MIG_CONFIG,
        sharing.MIG_DISABLED,
    )


ELASTIC = {"name": "burst", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}}
MANAGED = {"name": "fixed", "machine": "g4dn.xlarge", "nodes": 1}
UNHEALTHY = {"key": "gpuform.io/gpu-unhealthy", "operator": "Exists", "effect": "NoSchedule"}


def on_aws(*pools: dict[str, Any], **settings: Any) -> Environment:
    return parse({**small(*pools), "monitoring": {}, "health": settings})


def existing(**settings: Any) -> Environment:
    return on("existing", T4, monitoring={}, health=settings)


def permissions(env: Environment) -> set[tuple[str, str, str]]:
    return {
        (role["kind"], resource, verb)
        for role in health.manifests(env)
        if role["kind"] in ("ClusterRole", "Role")
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_without_it_nothing_is_there() -> None:
    plain = parse(small(ELASTIC, MANAGED))
    assert health.manifests(plain) == ()
    assert UNHEALTHY not in gpu_operator.gpu_tolerations(plain)
    assert health.HEALTH not in [namespace["metadata"]["name"] for namespace in quotas.namespaces(plain)]


def test_a_taint_that_a_loop_has_left_keeps_no_operand_away() -> None:
    """Without the toleration the device plugin's pods could not restart after their next change: no GPUs."""
    left_out = parse({**small(ELASTIC, MANAGED), "monitoring": {}})
    assert UNHEALTHY in gpu_operator.gpu_tolerations(left_out)


def test_who_observes_may_look_and_tell() -> None:
    inside = {("Role", "configmaps", verb) for verb in ("create", "get", "update")}
    observing = {("ClusterRole", "nodes", "list"), ("Role", "events", "create"), *inside}
    assert permissions(existing()) == observing
    acting_too = {("ClusterRole", "nodes", "patch"), ("ClusterRole", "nodes/status", "patch")}
    assert permissions(existing(mode="cordon")) == observing | acting_too
    assert permissions(on_aws(ELASTIC, MANAGED, mode="ticket")) == observing | acting_too


def test_the_loop_mounts_the_secret_of_a_prometheus_of_others() -> None:
    address = {"url": "https://mimir.example"}
    asked = {"plain": address, "secret": {**address, "token_secret": "metrics"}}
    found = {
        name: on("existing", T4, monitoring={"prometheus": theirs}, health={})
        for name, theirs in asked.items()
    }
    kinds = {name: {item["kind"]: item for item in health.manifests(env)} for name, env in found.items()}
    pods = {name: made["Deployment"]["spec"]["template"]["spec"] for name, made in kinds.items()}
    assert [item["name"] for item in pods["plain"]["volumes"]] == ["program"]
    (_, volume), (_, mount) = pods["secret"]["volumes"], pods["secret"]["containers"][0]["volumeMounts"]
    assert volume == {"name": "prometheus", "secret": {"secretName": "metrics"}}
    settings = json.loads(kinds["secret"]["ConfigMap"]["data"]["settings.json"])
    assert (mount["name"], mount["mountPath"], mount["readOnly"]) == ("prometheus", settings["secret"], True)


def test_magnums_auto_healing_may_act_where_the_loop_observes() -> None:
    elastic = {**T4, "elastic": {"min": 1, "max": {"nodes": 3}}}
    healing = {"labels": {"auto_healing_enabled": "true"}}
    assert on("openstack", T4, elastic, cluster=healing, monitoring={}, health={"mode": "observe"}).health


@pytest.mark.parametrize(
    ("settings", "pool", "by_eks", "by_karpenter", "agent"),
    [
        ({"mode": "ticket"}, ELASTIC, False, False, False),
        ({}, MANAGED, False, False, False),
        ({"mode": "cordon"}, MANAGED, False, False, False),
        ({"repair": "eks"}, MANAGED, True, False, True),
        ({"repair": "karpenter"}, ELASTIC, False, True, True),
    ],
)
def test_one_acts_on_nodes_with_gpus(
    settings: dict[str, Any], pool: dict[str, Any], by_eks: bool, by_karpenter: bool, agent: bool
) -> None:
    env = on_aws(pool, **settings)
    gates = eks.karpenter_values(env)["settings"]["featureGates"]
    assert gates.get("nodeRepair", False) is by_karpenter
    assert node_groups.is_repaired(env, env.pools[0]) is by_eks
    assert node_groups.is_repaired(env, node_groups.system_pool(env))  # no GPUs: not asked
    told_to = eks.add_on_settings(env).get("eks-node-monitoring-agent", {})
    assert (UNHEALTHY in told_to.get("dcgmAgent", {}).get("tolerations", [])) is agent


def test_without_health_eks_repairs_its_groups_as_ever() -> None:
    plain = parse(small(ELASTIC, MANAGED))
    assert all(node_groups.is_repaired(plain, pool) for pool in plain.pools)
    assert "nodeRepair" not in eks.karpenter_values(plain)["settings"]["featureGates"]


def test_the_keys_of_the_program_are_those_of_the_plan() -> None:
    assert (actions.TAINT, actions.CONDITION) == (labels.GPU_UNHEALTHY, labels.GPU_UNHEALTHY_CONDITION)
    assert (actions.RECORD, actions.REPAIRED) == (labels.GPU_HEALTH, labels.GPU_REPAIRED)
    assert (actions.TICKET, health_loop.RESET) == (labels.TICKET, labels.RESET_BREAKER)
    assert reporting.NAME == health.HEALTH
    assert json.loads(reporting.ticket("n", "p", "reset", [], 0)["ticket.json"])["node"] == "n"


def test_a_ticket_has_a_name_that_kubernetes_takes() -> None:
    assert reporting.ticket_name("node-1") == "gpu-ticket-node-1"
    long = reporting.ticket_name("n" * 253)
    assert len(long) == 253
    assert long != reporting.ticket_name("n" * 252 + "m")
