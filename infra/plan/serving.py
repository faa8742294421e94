"""Service, port, update strategy and time to start of a Deployment, as Kubernetes manifests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from infra.model import labels
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.rollout import Recreate, Rolling, Surge
from infra.model.workload import DeploymentWorkload, Workload

_PORT = "serving"
IMAGE_MINUTES = 10
"""For image and program: the default of Kubernetes' progressDeadlineSeconds and of Pulumi's provider."""
NODE_MINUTES = 15
"""For a node: then Karpenter (registrationTTL) and cluster-autoscaler (max-node-provision-time) give up."""
OPERANDS_MINUTES = 21
"""For a node's operands: startupProbe of the driver in the gpu-operator chart, 60 s and 120 times 10 s."""
MODEL_MINUTES = 31
"""For a model: startupProbe of NVIDIA's nim-llm chart, 40 s and 180 times 10 s."""

Manifest = dict[str, Any]


def service(workload: Workload, metadata: Manifest) -> Manifest | None:
    """The Service of a workload, if it declares one; it targets the container's port by name.

    An update does not wait for its endpoints if the pods wait in a queue.
    """
    if not isinstance(workload, DeploymentWorkload) or workload.service is None:
        return None
    if workload.queue:
        metadata = {**metadata, "annotations": {labels.SKIP_AWAIT: "true"}}
    port = {"name": _PORT, "port": workload.service.port, "protocol": "TCP", "targetPort": _PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "ClusterIP", "selector": {labels.APP_NAME: workload.name}, "ports": [port]},
    }


def address(workload: DeploymentWorkload) -> str:
    """``host:port`` of its Service inside the cluster; empty without one."""
    host = f"{workload.name}.{workload.namespace}.svc"
    return f"{host}:{workload.service.port}" if workload.service else ""


def strategy(workload: DeploymentWorkload, scarce: bool) -> Manifest:
    """The Deployment's strategy; empty for Kubernetes' default, and for blue-green, which our provider does.

    ``scarce``: a pod beside the old ones might wait for its place forever.
    """
    update = workload.update or (Rolling(kind="rolling") if scarce else None)
    if isinstance(update, Recreate):
        return {"strategy": {"type": "Recreate"}}
    if isinstance(update, Rolling):
        return _rolling(surge=0, unavailable=update.step)
    if isinstance(update, Surge):
        return _rolling(surge=update.step, unavailable=0)
    return {}


def start_minutes(env: Environment, workload: Workload, pools: Sequence[Pool]) -> int:
    """Minutes in which a pod of ``workload``, which runs on ``pools``, must be ready."""
    if declared := getattr(workload, "start_minutes", None):
        return int(declared)
    grows = any(pool.elastic for pool in pools)
    installs = env.ownership.driver == "operator" and env.cluster.kind != "embedded"
    operands = any(pool.gpus for pool in pools) and (grows or installs)
    model = isinstance(workload, DeploymentWorkload) and workload.service and workload.service.ready_path
    parts = (NODE_MINUTES * grows, OPERANDS_MINUTES * operands, MODEL_MINUTES * bool(model))
    return IMAGE_MINUTES + sum(parts)


def steps(workload: DeploymentWorkload, spec: Manifest) -> int:
    """Steps of an update by the Deployment's ``spec``; the pods of one step start together."""
    if spec.get("strategy", {}).get("type") == "Recreate":
        return 1
    within = spec.get("strategy", {}).get("rollingUpdate")
    # Kubernetes' default: a quarter of the pods may be added, rounded up, and a quarter away, rounded down.
    most = sum(within.values()) if within else math.ceil(workload.replicas / 4) + workload.replicas // 4
    return math.ceil(workload.replicas / most)


def _rolling(surge: int, unavailable: int) -> Manifest:
    within = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": within}}


def container(workload: Workload) -> Manifest:
    """Port and readiness probe of the container; empty without a Service."""
    if not isinstance(workload, DeploymentWorkload) or workload.service is None:
        return {}
    listens = workload.service.container_port
    found: Manifest = {"ports": [{"name": _PORT, "containerPort": listens, "protocol": "TCP"}]}
    if workload.service.ready_path:
        found["readinessProbe"] = {"httpGet": {"path": workload.service.ready_path, "port": _PORT}}
    return found
