"""Controllers on an existing cluster that act on nodes with a fault, as the health loop does.

Exactly one may act on nodes with GPUs: infra/model/health.py. They are known by the images of their pods:
NVSentinel (github.com/NVIDIA/NVSentinel: cordons, drains, resets), draino (github.com/planetlabs/draino:
drains by the conditions that node-problem-detector sets), medik8s' NodeHealthCheck, and Karpenter with the
gate NodeRepair. node-problem-detector and EKS's node monitoring agent only report. EKS's auto repair acts by
the agent's conditions; it is a setting of a node group, not visible in the cluster (EKS user guide).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.clouds.existing.preflight.cluster import DAEMON_SETS, Parts, containers, image, name
from gpuform.stack.preflight.check import Check, Judged
from infra.model.environment import Environment

DEPLOYMENTS = "deployments.apps"
SUBJECT = "health loop"
_ACTING: Mapping[str, str] = {
    "fault-quarantine": "NVSentinel",
    "fault-remediation": "NVSentinel",
    "node-drainer": "NVSentinel",
    "draino": "draino",
    "node-healthcheck-operator": "NodeHealthCheck",
}
"""What acts, by the name of its image; NVSentinel's first releases added ``-module``."""
_OF_EKS = "eks-node-monitoring-agent"
_REPAIRS = "NodeRepair=true"
Json = Mapping[str, Any]


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    """``by_hand``: kubectl with the options for this cluster."""
    if any(pool.gpus for pool in env.pools):
        yield Check(SUBJECT, f"{by_hand} get {DEPLOYMENTS},{DAEMON_SETS} -A -o wide", remediators)


def remediators(parts: Parts) -> Judged:
    there = [*parts.ask(DEPLOYMENTS), *parts.daemon_sets]
    acting = {found: name(one) for one in there for found in _acting(one)}
    said = " and ".join(f"{found} ({where})" for found, where in acting.items())
    health = parts.env.health
    if health is not None and health.acts:
        if acting:
            fact = f"{said} and the health loop (mode {health.mode}) would act on the same nodes"
            return Judged("FAIL", fact, "use health.mode: observe, or uninstall the other one first")
        if agent := next((one for one in there if _OF_EKS in map(image, containers(one))), None):
            fact = f"not known whether EKS's auto repair acts on what {name(agent)} reports"
            return Judged("SKIP", fact, "check that nodeRepairConfig of their node groups is not enabled")
    if len(acting) > 1:
        return Judged("SKIP", f"{said} act on the same nodes", "uninstall one of them")
    return Judged("PASS", f"only {said} acts on nodes" if acting else "nothing else acts on nodes")


def _acting(one: Json) -> Iterator[str]:
    """What an object runs that acts on nodes, by its name."""
    for container in containers(one):
        if known := _ACTING.get(image(container).removesuffix("-module")):
            yield known
        gates = [
            str(env.get("value")) for env in container.get("env") or () if env["name"] == "FEATURE_GATES"
        ]
        if any(_REPAIRS in each.split(",") for each in gates):
            yield "Karpenter's node repair"
