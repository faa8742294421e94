"""Nodes of a cluster that gpuform did not create, and the controllers on it that act on nodes with a fault.

Do requested GPUs reach containers, and only those? The API shows a node's container runtime
(``status.nodeInfo.containerRuntimeVersion``), but not the configuration of a container toolkit on it.

Exactly one controller may act on nodes with GPUs: infra/model/health.py. They are known by the images of
their pods: NVSentinel (github.com/NVIDIA/NVSentinel: cordons, drains, resets), draino
(github.com/planetlabs/draino: drains by the conditions that node-problem-detector sets), medik8s'
NodeHealthCheck, and Karpenter with the gate NodeRepair. node-problem-detector and
EKS's node monitoring agent only report. EKS's auto repair acts by the agent's conditions; it is a setting of
a node group, not visible in the cluster (EKS user guide).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gpuform.clouds.existing.preflight.cluster import (
    DAEMON_SETS,
    POLICIES,
    Parts,
    by_operator,
    containers,
    image,
    name,
    named,
)
from gpuform.stack.preflight.check import Check, Judged
from infra.model.environment import Environment
from infra.model.hosts import CDI

SETTING = "accept-nvidia-visible-devices-envvar-when-unprivileged"
VARIABLE = SETTING.replace("-", "_").upper()
ISOLATION = "GPUs without a request"
OWNERS = "driver and toolkit"
DEPLOY_DRIVER = "nvidia.com/gpu.deploy.driver"
_PRE_INSTALLED = "pre-installed"
_OPERANDS = {"driver": "driver", "toolkit": "container-toolkit"}
"""Names of the images of the operator's DaemonSets (its chart's values)."""
BY_HAND = f"on each node with GPUs: nvidia-ctk config | grep {SETTING}"
_OPEN = f"unless {SETTING} is false, any container that sets NVIDIA_VISIBLE_DEVICES=all sees all GPUs"
_CDI = {"containerd": CDI["containerd"], "cri-o": CDI["crio"]}
Json = Mapping[str, Any]


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    """``by_hand``: kubectl with the options for this cluster."""
    operator = env.gpu_operator
    if not any(pool.gpus for pool in env.pools):
        return
    if operator.mode == "operator":
        sets = f"{by_hand} get nodes -L {DEPLOY_DRIVER}; {by_hand} get {DAEMON_SETS} -A -o wide"
        yield Check(OWNERS, sets, owners)
    if operator.cdi and operator.mode != "existing":
        yield Check("container runtimes", f"{by_hand} get nodes -o wide", runtimes)
    if operator.mode == "existing":
        yield Check(ISOLATION, f"{by_hand} get {POLICIES} -o yaml", by_policy)
    elif env.ownership.toolkit == "host":
        yield Check(ISOLATION, BY_HAND, partial(unseen, env))


def owners(parts: Parts) -> Judged:
    """Compare who owns driver and toolkit by the file with labels and DaemonSets of NVIDIA's operator.

    An operator that finds a driver on a node labels the node, and runs its own driver there no more
    (gpu-operator, release notes 1.9.0).
    """
    said = parts.env.ownership
    for what, operand in _OPERANDS.items():
        sets = [one for one in parts.daemon_sets if by_operator(one) and named(one, (operand,))]
        busy = [one for one in sets if (one.get("status") or {}).get("desiredNumberScheduled")]
        if busy and getattr(said, what) == "host":
            fact = f"{what} is host, but the operator's {name(busy[0])} installs it, and would be removed"
            return Judged(
                "FAIL", fact, f"use gpu_operator.{what}: operator, or install it on the nodes first"
            )
    nodes = _nodes(parts)
    own = [node["metadata"]["name"] for node in nodes if _labelled(node, DEPLOY_DRIVER) == _PRE_INSTALLED]
    if own and said.driver == "operator":
        fact = f"driver is operator, but it installs none on nodes that have one: {', '.join(own)}"
        remedy = (
            f"use gpu_operator.driver: host; without a driver on them, remove their label {DEPLOY_DRIVER}"
        )
        return Judged("FAIL" if len(own) == len(nodes) else "SKIP", fact, remedy)
    return Judged("PASS", f"nothing contradicts driver: {said.driver}, toolkit: {said.toolkit}")


def runtimes(parts: Parts) -> Judged:
    nodes = _nodes(parts)
    without, unknown, by_host = [], [], parts.env.ownership.toolkit == "host"
    for node in nodes:
        said = str(node["status"]["nodeInfo"]["containerRuntimeVersion"])
        found = re.match(r"(containerd|cri-o)://v?(\d+)\.(\d+)", said)
        version = (int(found[2]), int(found[3])) if found else (0, 0)
        named = f"{node['metadata']['name']} ({said})"
        if found and version < _CDI[found[1]].known:
            without.append(named)
        elif not found or (version < _CDI[found[1]].on and by_host):
            unknown.append(named)
    if without:
        fact = f"without CDI, so containers get no GPU: {', '.join(without)}"
        return Judged("FAIL", fact, "use gpu_operator.cdi: false, or containerd 1.7 or CRI-O 1.23 or newer")
    if unknown:
        fact = f"not known whether CDI is enabled: {', '.join(unknown)}"
        return Judged("SKIP", fact, "check that the runtime's configuration has enable_cdi = true")
    return Judged("PASS", f"nodes with GPUs: {len(nodes)}, each with CDI")


def by_policy(parts: Parts) -> Judged:
    """Read the setting of the cluster's own operator."""
    for policy in parts.ask(POLICIES):
        name, toolkit = policy["metadata"]["name"], policy["spec"].get("toolkit") or {}
        env = {one["name"]: one.get("value") for one in toolkit.get("env") or ()}
        if toolkit.get("enabled", True) and env.get(VARIABLE) == "false":
            return Judged("PASS", f"{VARIABLE} is false in ClusterPolicy {name}")
        if toolkit.get("enabled", True):
            fix = f"set {VARIABLE}=false in toolkit.env of that operator"
            return Judged("SKIP", f"ClusterPolicy {name} does not restrict it: {_OPEN}", fix)
    return unseen(parts.env, parts)


def unseen(env: Environment, _: object) -> Judged:
    """Neither gpuform nor a visible operator configures the toolkit."""
    fact = f"not known, gpuform does not configure the container toolkit: {_OPEN}"
    if env.gpu_operator.cdi:
        return Judged(
            "SKIP", fact, f"on each node with GPUs: nvidia-ctk config --in-place --set {SETTING}=false"
        )
    fix = "use gpu_operator.cdi: true, or toolkit: operator"
    return Judged("SKIP", f"{fact}, and with cdi: false it cannot be false", fix)


def _nodes(parts: Parts) -> list[Json]:
    """Nodes of the pools with GPUs."""
    return [one for one in parts.ask("nodes") if _has_gpus(parts.env, one)]


def _labelled(node: Json, key: str) -> str | None:
    found: str | None = (node["metadata"].get("labels") or {}).get(key)
    return found


def _has_gpus(env: Environment, node: Json) -> bool:
    has = node["metadata"].get("labels") or {}
    selectors = [pool.selector or {} for pool in env.pools if pool.gpus]
    return any(selector.items() <= has.items() for selector in selectors)


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


def controllers(env: Environment, by_hand: str) -> Iterator[Check]:
    """One check: who acts on nodes with GPUs."""
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
