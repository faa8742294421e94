"""The readiness gate: one small pod that removes the startup taint from GPU nodes that are proven.

Its program is ``infra/incluster/readiness_gate.py``, in a ConfigMap named by its content, so that a change
makes a new pod; the ConfigMap also has what the nodes of each pool must show. It may list and patch nodes,
list ResourceSlices if GPUs are claimed, list the pods of its namespace, create and delete pods in a namespace
of Pod Security level restricted, and nothing else.
"""

from __future__ import annotations

from typing import Any

from infra import versions
from infra.model.base import labels
from infra.model.base.namespaces import TRIAL
from infra.model.environment import Environment
from infra.plan import device_plugin, gpu_operator, sharing, startup
from infra.plan.manifest import Manifest, rbac_rule
from infra.plan.program import Program

NAME = "readiness-gate"
FILES = ("readiness_gate.py", "cluster.py", "proof.py", "trial.py")


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """The gate's objects, in creation order; empty if no node waits for it."""
    if not startup.any_gated(env):
        return ()
    gate = Program(env, NAME, sharing.NAMESPACE)
    files, pod = gate.script_pod(FILES, ("pools.json", pools(env)), "/gate")
    return (gate.account(), *_roles(env, gate), files, gate.deployment(1, pod))


def pools(env: Environment) -> dict[str, Any]:
    """What a node of each pool must show: discovery labels, ready operands, and what it offers.

    Karpenter's nodes carry what they must offer as an annotation, as the pool was when they were created.
    """
    needs: dict[str, Any] = {}
    pool_operands = operands(env)
    for pool in env.pools:
        if startup.is_gated(env, pool):
            needed = [] if pool.by_claim else list(pool_operands)
            needs[pool.name] = {"labels": [labels.DRIVER_VERSION], "operands": needed}
            if not pool.by_karpenter:
                needs[pool.name]["offers"] = startup.expected_resources(env, pool)
            if startup.has_trial(env, pool):
                runtime_class = {"runtime_class": env.runtime_class} if env.runtime_class else {}
                needs[pool.name]["trial"] = {
                    "image": env.image(versions.READINESS_GATE_IMAGE),
                    "namespace": TRIAL,
                    **runtime_class,
                }
    return needs


def operands(env: Environment) -> tuple[str, ...]:
    """Label ``app`` of the operands that must be ready on nodes of pools other than those by claim.

    What the node image brings is not an operand: its absence is not a failure. Where GPUs are claimed
    beside other pools, the validator waits for a device plugin, which does not run, and is never ready.
    """
    if env.ownership.device_plugin == "chart":
        return (device_plugin.NAME,)
    values = gpu_operator.values(env)
    is_enabled = {
        "nvidia-driver-daemonset": values["driver"]["enabled"],
        "nvidia-container-toolkit-daemonset": values["toolkit"]["enabled"],
        "nvidia-device-plugin-daemonset": values["devicePlugin"]["enabled"],
        "nvidia-operator-validator": True,
    }
    return tuple(app for app, enabled in is_enabled.items() if enabled)


def _roles(env: Environment, gate: Program) -> tuple[Manifest, ...]:
    """Nodes are cluster-scoped; the operands' pods are in the gate's namespace."""
    node_rules = [rbac_rule("", "nodes", "list", "patch")]
    if any(pool.by_claim for pool in env.pools):
        node_rules.append(rbac_rule("resource.k8s.io", "resourceslices", "list"))
    tried = any(startup.has_trial(env, pool) for pool in env.pools)
    return (
        *gate.role_and_binding(f"gpuform-{NAME}", node_rules),
        *gate.role_and_binding(NAME, [rbac_rule("", "pods", "list")], gate.namespace),
        *(
            gate.role_and_binding(NAME, [rbac_rule("", "pods", "create", "delete", "list")], TRIAL)
            if tried
            else ()
        ),
    )
