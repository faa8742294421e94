"""Nodes of a cluster that gpuform did not create, and the controllers on it that act on nodes with a fault.

Do requested GPUs reach containers, and only those? The API shows a node's container runtime
(``status.nodeInfo.containerRuntimeVersion``), but not the configuration of a container toolkit on it.

Exactly one controller may act on nodes with GPUs: infra/model/platform/health.py. They are known by the
images of their pods: NVSentinel (github.com/NVIDIA/NVSentinel: cordons, drains, resets), draino
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
    LiveCluster,
    node_labels,
    object_name,
)
from gpuform.kubernetes.controllers import containers, has_image, image_name, is_operator_owned
from gpuform.kubernetes.kinds import CLUSTER_POLICY, DAEMON_SET, DEPLOYMENT
from gpuform.stack.preflight.check import Check, Result
from infra import facts
from infra.model.environment import Environment
from infra.model.hosts.cluster import CDI

SETTING = "accept-nvidia-visible-devices-envvar-when-unprivileged"
VARIABLE = SETTING.replace("-", "_").upper()
ISOLATION = "GPUs without a request"
OWNERSHIP = "driver and toolkit"
DEPLOY_DRIVER = "nvidia.com/gpu.deploy.driver"
_PRE_INSTALLED = "pre-installed"
_OPERANDS = {"driver": "driver", "toolkit": "container-toolkit"}
"""Names of the images of the operator's DaemonSets (its chart's values)."""
BY_HAND = f"on each node with GPUs: nvidia-ctk config | grep {SETTING}"
_UNRESTRICTED = f"unless {SETTING} is false, any container that sets NVIDIA_VISIBLE_DEVICES=all sees all GPUs"
_CDI_RUNTIMES = {"containerd": CDI["containerd"], "cri-o": CDI["crio"]}
Json = Mapping[str, Any]


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    """``by_hand``: kubectl with the options for this cluster."""
    operator = env.gpu_operator
    if not any(pool.gpus for pool in env.pools):
        return
    if operator.mode == "operator":
        sets = f"{by_hand} get nodes -L {DEPLOY_DRIVER}; {by_hand} get {DAEMON_SET.resource} -A -o wide"
        yield Check(OWNERSHIP, sets, judge_ownership)
    if env.ownership.toolkit == "operator":
        yield Check("containerd of the nodes", f"{by_hand} get nodes", judge_containerd)
    if operator.cdi and operator.mode != "existing":
        yield Check("container runtimes", f"{by_hand} get nodes -o wide", judge_runtimes)
    if operator.mode == "existing":
        yield Check(ISOLATION, f"{by_hand} get {CLUSTER_POLICY.resource} -o yaml", judge_policy)
    elif env.ownership.toolkit == "host":
        yield Check(ISOLATION, BY_HAND, partial(judge_unknown_toolkit, env))


def judge_ownership(cluster: LiveCluster) -> Result:
    """Compare who owns driver and toolkit by the file with labels and DaemonSets of NVIDIA's operator.

    An operator that finds a driver on a node labels the node, and runs its own driver there no more
    (gpu-operator, release notes 1.9.0).
    """
    ownership = cluster.env.ownership
    for component, operand in _OPERANDS.items():
        owned = filter(is_operator_owned, cluster.daemon_sets)
        operands = [item for item in owned if has_image(item, (operand,))]
        running = [item for item in operands if (item.get("status") or {}).get("desiredNumberScheduled")]
        if running and getattr(ownership, component) == "host":
            fact = f"{component} is host, but the operator's {object_name(running[0])} installs it"
            fix = f"use gpu_operator.{component}: operator, or install it on the nodes first"
            return Result("FAIL", f"{fact}, and would be removed", fix)
    nodes = cluster.gpu_nodes
    with_driver = [node for node in nodes if node_labels(node).get(DEPLOY_DRIVER) == _PRE_INSTALLED]
    preinstalled = [node["metadata"]["name"] for node in with_driver]
    if preinstalled and ownership.driver == "operator":
        fact = f"driver is operator, but it installs none on nodes that have one: {', '.join(preinstalled)}"
        fix = f"use gpu_operator.driver: host; without a driver on them, remove their label {DEPLOY_DRIVER}"
        return Result("FAIL" if len(preinstalled) == len(nodes) else "SKIP", fact, fix)
    return Result("PASS", f"nothing contradicts driver: {ownership.driver}, toolkit: {ownership.toolkit}")


def judge_containerd(cluster: LiveCluster) -> Result:
    """The operator's toolkit must signal the containerd of the nodes' distribution, or its pods fail.

    Sources: infra/facts/distributions.yaml.
    """
    declared = cluster.env.gpu_operator.toolkit_env.CONTAINERD_SOCKET
    sockets = {row.socket for row in facts.DISTRIBUTIONS.values()}
    for node in cluster.gpu_nodes:
        version = str(node["status"]["nodeInfo"].get("kubeletVersion", ""))
        row = facts.distribution_of(version)
        name = f"node {node['metadata']['name']} (kubelet {version})"
        if row and declared != row.socket:
            fix = f"use gpu_operator.toolkit_env: {{CONTAINERD_SOCKET: {row.socket}}}"
            return Result("FAIL", f"{name} has its containerd's socket at {row.socket}", fix)
        if not row and declared in sockets:
            fact = (
                f"gpu_operator.toolkit_env.CONTAINERD_SOCKET is that of k3s and RKE2, and {name} runs neither"
            )
            return Result("FAIL", fact, "leave it out, or name the node's own socket")
    return Result("PASS", "its socket is the one that the toolkit signals")


def judge_runtimes(cluster: LiveCluster) -> Result:
    nodes = cluster.gpu_nodes
    without_cdi, unknown, by_host = [], [], cluster.env.ownership.toolkit == "host"
    for node in nodes:
        runtime = str(node["status"]["nodeInfo"]["containerRuntimeVersion"])
        match = re.match(r"(containerd|cri-o)://v?(\d+)\.(\d+)", runtime)
        version = (int(match[2]), int(match[3])) if match else (0, 0)
        node_name = f"{node['metadata']['name']} ({runtime})"
        if match and version < _CDI_RUNTIMES[match[1]].first:
            without_cdi.append(node_name)
        elif not match or (version < _CDI_RUNTIMES[match[1]].first_enabled and by_host):
            unknown.append(node_name)
    if without_cdi:
        fact = f"without CDI, so containers get no GPU: {', '.join(without_cdi)}"
        return Result("FAIL", fact, "use gpu_operator.cdi: false, or containerd 1.7 or CRI-O 1.23 or newer")
    if unknown:
        fact = f"not known whether CDI is enabled: {', '.join(unknown)}"
        return Result("SKIP", fact, "check that the runtime's configuration has enable_cdi = true")
    return Result("PASS", f"nodes with GPUs: {len(nodes)}, each with CDI")


def judge_policy(cluster: LiveCluster) -> Result:
    """Read the setting of the cluster's own operator."""
    for policy in cluster.list_objects(CLUSTER_POLICY):
        name, toolkit = policy["metadata"]["name"], policy["spec"].get("toolkit") or {}
        env = {variable["name"]: variable.get("value") for variable in toolkit.get("env") or ()}
        if toolkit.get("enabled", True) and env.get(VARIABLE) == "false":
            return Result("PASS", f"{VARIABLE} is false in ClusterPolicy {name}")
        if toolkit.get("enabled", True):
            fix = f"set {VARIABLE}=false in toolkit.env of that operator"
            return Result("SKIP", f"ClusterPolicy {name} does not restrict it: {_UNRESTRICTED}", fix)
    return judge_unknown_toolkit(cluster.env, cluster)


def judge_unknown_toolkit(env: Environment, _: object) -> Result:
    """Neither gpuform nor a visible operator configures the toolkit."""
    fact = f"not known, gpuform does not configure the container toolkit: {_UNRESTRICTED}"
    if env.gpu_operator.cdi:
        fix = f"on each node with GPUs: nvidia-ctk config --in-place --set {SETTING}=false"
        return Result("SKIP", fact, fix)
    fix = "use gpu_operator.cdi: true, or toolkit: operator"
    return Result("SKIP", f"{fact}, and with cdi: false it cannot be false", fix)


SUBJECT = "health loop"
_ACTING_IMAGES: Mapping[str, str] = {
    "fault-quarantine": "NVSentinel",
    "fault-remediation": "NVSentinel",
    "node-drainer": "NVSentinel",
    "draino": "draino",
    "node-healthcheck-operator": "NodeHealthCheck",
}
"""What acts, by the name of its image; NVSentinel's first releases added ``-module``."""
_EKS_AGENT = "eks-node-monitoring-agent"
_NODE_REPAIR_GATE = "NodeRepair=true"


def controllers(env: Environment, by_hand: str) -> Iterator[Check]:
    """One check: who acts on nodes with GPUs."""
    if any(pool.gpus for pool in env.pools):
        kinds = f"{DEPLOYMENT.resource},{DAEMON_SET.resource}"
        yield Check(SUBJECT, f"{by_hand} get {kinds} -A -o wide", judge_remediators)


def judge_remediators(cluster: LiveCluster) -> Result:
    objects = [*cluster.list_objects(DEPLOYMENT), *cluster.daemon_sets]
    acting = {program: object_name(item) for item in objects for program in _acting_names(item)}
    names = " and ".join(f"{program} ({place})" for program, place in acting.items())
    health = cluster.env.health
    if health is not None and health.changes_nodes:
        if acting:
            fact = f"{names} and the health loop (mode {health.mode}) would act on the same nodes"
            return Result("FAIL", fact, "use health.mode: observe, or uninstall the other one first")
        if agent := next((item for item in objects if _EKS_AGENT in map(image_name, containers(item))), None):
            fact = f"not known whether EKS's auto repair acts on what {object_name(agent)} reports"
            return Result("SKIP", fact, "check that nodeRepairConfig of their node groups is not enabled")
    if len(acting) > 1:
        return Result("SKIP", f"{names} act on the same nodes", "uninstall one of them")
    return Result("PASS", f"only {names} acts on nodes" if acting else "nothing else acts on nodes")


def _acting_names(item: Json) -> Iterator[str]:
    """What an object runs that acts on nodes, by its name."""
    for container in containers(item):
        if program := _ACTING_IMAGES.get(image_name(container).removesuffix("-module")):
            yield program
        variables = container.get("env") or ()
        gates = [str(item.get("value")) for item in variables if item["name"] == "FEATURE_GATES"]
        if any(_NODE_REPAIR_GATE in gate.split(",") for gate in gates):
            yield "Karpenter's node repair"
