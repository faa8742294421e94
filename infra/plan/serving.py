"""Service, port, update strategy and time to start of a Deployment, as Kubernetes manifests."""

from __future__ import annotations

import math
from collections.abc import Sequence

from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.serving import READY, Recreate, Rolling, Surge
from infra.model.workload import DeploymentWorkload, InferenceWorkload, Workload
from infra.plan.manifest import Manifest, cluster_ip_service

PORT, METRICS = "serving", "metrics"
"""Names of the container's ports."""
IMAGE_MINUTES = 10
"""For image and program: the default of Kubernetes' progressDeadlineSeconds and of Pulumi's provider."""
NODE_MINUTES = 15
"""For a node: then Karpenter (registrationTTL) and cluster-autoscaler (max-node-provision-time) give up."""
OPERANDS_MINUTES = 21
"""For a node's operands: startupProbe of the driver in the gpu-operator chart, 60 s and 120 times 10 s."""
MODEL_MINUTES = 31
"""For a model: startupProbe of NVIDIA's nim-llm chart, 40 s and 180 times 10 s."""


def service(workload: Workload, metadata: Manifest) -> Manifest | None:
    """The Service of a workload, if it declares one; it targets the container's port by name.

    An update does not wait for its endpoints if the pods wait in a queue or for requests.
    """
    if not isinstance(workload, DeploymentWorkload) or workload.service is None:
        return None
    port = {"name": PORT, "port": workload.service.port, "targetPort": PORT}
    empty = isinstance(workload, InferenceWorkload) and workload.scale and workload.scale.min == 0
    return cluster_ip_service(metadata, workload.name, port, awaited=not (workload.queue or empty))


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
    model = isinstance(workload, DeploymentWorkload) and ready_path(workload)
    parts = (NODE_MINUTES * grows, OPERANDS_MINUTES * operands, MODEL_MINUTES * bool(model))
    return IMAGE_MINUTES + sum(parts)


def steps(workload: DeploymentWorkload, spec: Manifest) -> int:
    """Steps of an update by the Deployment's ``spec``; the pods of one step start together."""
    if spec.get("strategy", {}).get("type") == "Recreate":
        return 1
    within = spec.get("strategy", {}).get("rollingUpdate")
    # Kubernetes' default: a quarter of the pods may be added, rounded up, and a quarter away, rounded down.
    most = sum(within.values()) if within else math.ceil(workload.pods / 4) + workload.pods // 4
    return math.ceil(workload.pods / most)


def _rolling(surge: int, unavailable: int) -> Manifest:
    within = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": within}}


def container(workload: Workload) -> Manifest:
    """Ports and readiness probe of the container; empty if it has no port."""
    if not isinstance(workload, DeploymentWorkload):
        return {}
    found: Manifest = {}
    listens = [(PORT, workload.service.container_port)] if workload.service else []
    measured = workload.measured if isinstance(workload, InferenceWorkload) else None
    if measured and measured.port not in (port for _, port in listens):
        listens.append((METRICS, measured.port))
    if listens:
        ports = [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in listens]
        found["ports"] = ports
    if path := ready_path(workload):
        found["readinessProbe"] = {"httpGet": {"path": path, "port": PORT}}
    return found


def ready_path(workload: DeploymentWorkload) -> str | None:
    """HTTP path of its readiness; Triton's if KServe serves it with Triton's own arguments."""
    triton = isinstance(workload, InferenceWorkload) and workload.model and not workload.command
    return (workload.service and workload.service.ready_path) or (READY if triton else None)


def replicas(workload: DeploymentWorkload) -> Manifest:
    """Number of pods in the Deployment's ``spec``; empty if requests set it."""
    scaled = isinstance(workload, InferenceWorkload) and workload.scale
    return {} if scaled else {"replicas": workload.replicas}
