"""The health loop: one small pod that acts on nodes with a faulty GPU, within the environment's limits.

Its program is ``infra/incluster/health.py`` and the files beside it, in a ConfigMap named by its content,
together with its settings. It has a namespace of its own, because it may write ConfigMaps there: its state
and the tickets. It may list nodes, patch them (unless it only observes) and create events; nothing else.
Credentials for a Prometheus of others are a Secret that its pod mounts.
"""

from __future__ import annotations

from typing import Any

from infra.model.base import labels
from infra.model.base.namespaces import HEALTH
from infra.model.base.quantities import seconds
from infra.model.environment import Environment
from infra.model.platform.monitoring import PROMETHEUS_URL
from infra.plan import startup
from infra.plan.manifest import Manifest, manifest, rbac_rule
from infra.plan.program import Program

FILES = ("health.py", "actions.py", "model.py", "cluster.py", "decisions.py", "proof.py", "reporting.py")
PORT = 8080
MOUNT = "/prometheus"
"""Folder of the Secret's keys in the pod."""
EVENTS = "default"
"""Namespace of events about nodes, which are not namespaced."""
SETTLE_S = 600
"""Seconds without a fault until a repaired node is used again. An XID counts for five minutes after it was
seen [window of DCGM_EXP_XID_ERRORS_COUNT]; twice that, so that a second one is not missed."""


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """The loop's objects, in creation order; empty if the environment declares no loop."""
    if env.health is None:
        return ()
    loop = Program(env, HEALTH, HEALTH)
    liveness = {"httpGet": {"path": "/healthz", "port": PORT}, "initialDelaySeconds": 30, "periodSeconds": 30}
    files, pod = loop.script_pod(
        FILES,
        ("settings.json", settings(env)),
        "/health",
        memory="256Mi",
        livenessProbe=liveness,
        ports=[{"name": "metrics", "containerPort": PORT}],
    )
    if secret := _secret(env):
        pod["volumes"].append({"name": "prometheus", "secret": {"secretName": secret}})
        mount = {"name": "prometheus", "mountPath": MOUNT, "readOnly": True}
        pod["containers"][0]["volumeMounts"].append(mount)
    files["metadata"] = loop.metadata(files["metadata"]["name"], HEALTH)
    return (
        loop.account(),
        *_roles(env, loop),
        files,
        # Two pods would each act on faults before the other has stored its state.
        loop.deployment(1, pod, strategy={"type": "Recreate"}),
        _service(loop),
        *((monitor(env),) if env.monitoring is None or env.monitoring.has_operator else ()),
    )


def settings(env: Environment) -> dict[str, Any]:
    """The program's settings; durations in seconds, the budget as a ratio (0 to 1)."""
    assert env.health is not None
    return {
        "budget": env.health.budget_ratio,
        "listen": f":{PORT}",
        "max": env.health.max,
        "mode": env.health.mode,
        "pools": pools(env),
        "prometheus": env.monitoring.address if env.monitoring else PROMETHEUS_URL,
        **({"secret": MOUNT} if _secret(env) else {}),
        "settle_s": SETTLE_S,
        "window_s": seconds(env.health.window),
    }


def _secret(env: Environment) -> str | None:
    """Name of the Secret by which the loop queries Prometheus; None without one."""
    theirs = env.monitoring.prometheus if env.monitoring else None
    return theirs.credentials[0] if theirs and theirs.credentials else None


def pools(env: Environment) -> dict[str, Any]:
    """What a repaired node of each GPU pool must offer; empty for Karpenter's, which carry it themselves."""
    return {
        pool.name: {} if pool.by_karpenter else {"offers": startup.expected_resources(env, pool)}
        for pool in env.pools
        if pool.gpus
    }


def _roles(env: Environment, loop: Program) -> tuple[Manifest, ...]:
    """Nodes are cluster-scoped; a rule cannot restrict ``create`` to a ConfigMap's name."""
    assert env.health is not None
    rules = [rbac_rule("", "nodes", "list")]
    if env.health.changes_nodes:
        rules += [rbac_rule("", "nodes", "patch"), rbac_rule("", "nodes/status", "patch")]
    events = rbac_rule("", "events", "create")
    return (
        *loop.role_and_binding(HEALTH, rules),
        *loop.role_and_binding(
            HEALTH, [rbac_rule("", "configmaps", "create", "get", "update"), events], HEALTH
        ),
        *loop.role_and_binding(f"{HEALTH}-events", [events], EVENTS),
    )


def _service(loop: Program) -> Manifest:
    spec = {
        "clusterIP": "None",
        "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics"}],
        "selector": {labels.APP_NAME: HEALTH},
    }
    return manifest("Service", loop.metadata(), spec=spec)


def monitor(env: Environment) -> Manifest:
    """With ``honorLabels`` the loop's own labels (node, class) take precedence over those of its pod."""
    metadata = Program(env, HEALTH, HEALTH).metadata()
    metadata["labels"] |= env.monitoring.selected_by if env.monitoring else {}
    spec = {
        "endpoints": [{"honorLabels": True, "interval": "15s", "port": "metrics"}],
        "selector": {"matchLabels": {labels.APP_NAME: HEALTH}},
    }
    return manifest("ServiceMonitor", metadata, "monitoring.coreos.com/v1", spec=spec)
