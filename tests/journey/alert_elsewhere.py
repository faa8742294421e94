"""NodePools, which an embedded cluster does not have, and the health loop, for ``test_alerts``."""

from __future__ import annotations

import yaml

from gpuform.checkout.paths import Paths
from infra.config import parse
from infra.model.health import HEALTH
from infra.plan import room
from infra.plan.rules import alerts, groups
from tests.journey.alert_objects import played
from tests.journey.alert_trouble import Trouble, at, each, fault, gone, make
from tests.journey.alerts_world import World


def elastic() -> tuple[Trouble, ...]:
    """Of an AWS stack with a spare node in its pool: its own rules and placeholders, without its cloud."""
    content = yaml.safe_load((Paths.here().root / "Pulumi.aws-dev.yaml").read_text())
    declared = content["config"]["gpuform:environment"]
    declared["pools"][0]["spare"] = 1
    env = parse(declared | {"monitoring": {}})
    names = ("gpuform:nodepool:node_size", "gpuform:nodepool:nodes_left")
    rules = [rule for group in groups(env) for rule in group["rules"] if rule.get("record") in names]
    sizes = {
        rule["labels"]["resource_type"]: rule["labels"]["nodepool"] for rule in rules if "labels" in rule
    }
    rules += [one.rule() for one in alerts.every(env) if one.name == "GpuSpareGone"]
    limits = [
        (f"karpenter_nodepools_{word}", {"nodepool": pool, "resource_type": kind}, 16.0)
        for kind, pool in sizes.items()
        for word in ("limit", "usage")
    ]
    spare = room.placeholders(env)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spare[0]["metadata"]["namespace"]}}
    pool = env.pools[0].name
    return (
        Trouble(
            "a pool at its limit that keeps no node free",
            make(
                space,
                *room.priority_classes(env),
                *spare,
                played("elastic", limits, rules),
            ),
            each(
                gone("prometheusrule", "elastic", namespace="monitoring"),
                gone("namespace", space["metadata"]["name"], namespace="default"),
            ),
            (("GpuNodePoolAtLimit", {"pool": pool}), ("GpuSpareGone", {"pool": pool})),
            played="Karpenter's series, and the rules of a stack on AWS: an embedded cluster buys no nodes",
        ),
    )


def _fails_and_then_acts(world: World) -> None:
    """The loop's permission to patch nodes is missing at the first fault, and is restored a little later."""
    world.may_patch(HEALTH, allowed=False)
    world.fault("whole-5", "--gpu", "0", "--gpu-lost")
    world.soon(lambda: world.query('gpuform_health_actions_total{node="whole-5",result="failed"}'))
    world.may_patch(HEALTH, allowed=True)
    world.soon(lambda: world.taint("whole-5"))


def health() -> tuple[Trouble, ...]:
    """The real loop's; the first fault of all, since later ones exceed its budget."""
    failed = {"node": "whole-5", "class": "replace", "action": "cordon"}
    return (
        Trouble(
            "more nodes with broken GPUs than the loop's budget has",
            lambda world: None,
            lambda world: None,
            (("GpuHealthBreakerOpen", {}),),
        ),
        Trouble(
            "a GPU off the bus, and a health loop that may not act at first",
            _fails_and_then_acts,
            fault("whole-5", 0, "--clear"),
            (
                ("GpuLost", at("whole-5", 0)),
                ("GpuXidReplace", at("whole-5", 0, xid="79")),
                ("GpuNodeOffersFewer", at("whole-5", resource="nvidia_com_gpu")),
                ("GpuHealthActionFailed", failed),
            ),
        ),
    )
