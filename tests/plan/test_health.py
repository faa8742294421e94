"""The health loop's objects: its configuration, its permissions, and which other controllers act."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.config import parse
from infra.incluster import actions, reporting
from infra.incluster import health as program
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import eks, gpu_operator, health, node_groups, quotas
from tests.components.aws_stacks import small
from tests.plan.environments import on

pytestmark = pytest.mark.unit

ELASTIC = {"name": "burst", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}}
MANAGED = {"name": "fixed", "machine": "g4dn.xlarge", "nodes": 1}
TOLERATION = {"key": "gpuform.io/gpu-unhealthy", "operator": "Exists", "effect": "NoSchedule"}


def on_aws(*pools: dict[str, Any], **settings: Any) -> Environment:
    return parse({**small(*pools), "monitoring": {}, "health": settings})


def existing(**settings: Any) -> Environment:
    return on("existing", {"machine": "g2.5xlarge"}, monitoring={}, health=settings)


def on_openstack(**settings: Any) -> Environment:
    elastic = {"machine": "g2.5xlarge", "elastic": {"min": 1, "max": {"nodes": 3}}}
    healing = {"labels": {"auto_healing_enabled": "true"}}
    return on(
        "openstack", {"machine": "g2.5xlarge"}, elastic, cluster=healing, monitoring={}, health=settings
    )


def manifests_of(env: Environment, kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in health.manifests(env) if manifest["kind"] == kind]


def permissions(env: Environment) -> set[tuple[str, str, str]]:
    return {
        (role["kind"], resource, verb)
        for kind in ("ClusterRole", "Role")
        for role in manifests_of(env, kind)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_without_it_nothing_is_there() -> None:
    plain = parse(small(ELASTIC, MANAGED))
    assert health.manifests(plain) == ()
    assert TOLERATION not in gpu_operator.gpu_tolerations(plain)
    assert health.HEALTH not in [namespace["metadata"]["name"] for namespace in quotas.namespaces(plain)]


def test_a_taint_that_a_loop_has_left_keeps_no_operand_away() -> None:
    """Without the toleration the device plugin's pods could not restart after their next change: no GPUs."""
    left_out = parse({**small(ELASTIC, MANAGED), "monitoring": {}})
    assert TOLERATION in gpu_operator.gpu_tolerations(left_out)


def test_who_observes_may_look_and_tell() -> None:
    inside = {("Role", "configmaps", verb) for verb in ("create", "get", "update")}
    observing = {("ClusterRole", "nodes", "list"), ("Role", "events", "create"), *inside}
    assert permissions(existing()) == observing
    acting_too = {("ClusterRole", "nodes", "patch"), ("ClusterRole", "nodes/status", "patch")}
    assert permissions(existing(mode="cordon")) == observing | acting_too
    assert permissions(on_aws(ELASTIC, MANAGED, mode="ticket")) == observing | acting_too


def test_magnums_auto_healing_may_act_where_the_loop_observes() -> None:
    assert on_openstack(mode="observe").health


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
    assert (TOLERATION in told_to.get("dcgmAgent", {}).get("tolerations", [])) is agent


def test_without_health_eks_repairs_its_groups_as_ever() -> None:
    plain = parse(small(ELASTIC, MANAGED))
    assert all(node_groups.is_repaired(plain, pool) for pool in plain.pools)
    assert "nodeRepair" not in eks.karpenter_values(plain)["settings"]["featureGates"]


def test_the_keys_of_the_program_are_those_of_the_plan() -> None:
    assert (actions.TAINT, actions.CONDITION) == (labels.GPU_UNHEALTHY, labels.GPU_UNHEALTHY_CONDITION)
    assert (actions.RECORD, actions.REPAIRED) == (labels.GPU_HEALTH, labels.GPU_REPAIRED)
    assert (actions.TICKET, program.RESET) == (labels.TICKET, labels.RESET_BREAKER)
    assert reporting.NAME == health.HEALTH
    assert json.loads(reporting.ticket("n", "p", "reset", [], 0)["ticket.json"])["node"] == "n"


def test_a_ticket_has_a_name_that_kubernetes_takes() -> None:
    assert reporting.ticket_name("node-1") == "gpu-ticket-node-1"
    long = reporting.ticket_name("n" * 253)
    assert len(long) == 253
    assert long != reporting.ticket_name("n" * 252 + "m")
