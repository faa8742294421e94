"""Service, port, update strategy and time to start of a Deployment, as Kubernetes manifests."""

from __future__ import annotations

import math
from collections.abc import Sequence

from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.model.workload.serving import READY_PATH, Recreate, Rolling, Surge
from infra.model.workload.workload import DeploymentWorkload, InferenceWorkload, Workload
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
    may_be_empty = isinstance(workload, InferenceWorkload) and workload.scale and workload.scale.min == 0
    return cluster_ip_service(metadata, workload.name, port, awaited=not (workload.queue or may_be_empty))


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
    has_elastic = any(pool.elastic for pool in pools)
    installs_driver = env.ownership.driver == "operator" and env.cluster.kind != "embedded"
    operands = any(pool.gpus for pool in pools) and (has_elastic or installs_driver)
    loads = isinstance(workload, DeploymentWorkload) and ready_path(workload)
    parts = (NODE_MINUTES * has_elastic, OPERANDS_MINUTES * operands, MODEL_MINUTES * bool(loads))
    return IMAGE_MINUTES + sum(parts)


def update_steps(workload: DeploymentWorkload, spec: Manifest) -> int:
    """Steps of an update by the Deployment's ``spec``; the pods of one step start together."""
    if spec.get("strategy", {}).get("type") == "Recreate":
        return 1
    rolling = spec.get("strategy", {}).get("rollingUpdate")
    # Kubernetes' default: a quarter of the pods may be added, rounded up, and a quarter away, rounded down.
    pods_at_once = sum(rolling.values()) if rolling else math.ceil(workload.pods / 4) + workload.pods // 4
    return math.ceil(workload.pods / pods_at_once)


def _rolling(surge: int, unavailable: int) -> Manifest:
    limits = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": limits}}


def container(workload: Workload) -> Manifest:
    """Ports and readiness probe of the container; empty if it has no port."""
    if not isinstance(workload, DeploymentWorkload):
        return {}
    fields: Manifest = {}
    named_ports = [(PORT, workload.service.container_port)] if workload.service else []
    metrics = workload.pod_metrics if isinstance(workload, InferenceWorkload) else None
    if metrics and metrics.port not in (port for _, port in named_ports):
        named_ports.append((METRICS, metrics.port))
    if named_ports:
        ports = [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in named_ports]
        fields["ports"] = ports
    if path := ready_path(workload):
        fields["readinessProbe"] = {"httpGet": {"path": path, "port": PORT}}
    return fields


def ready_path(workload: DeploymentWorkload) -> str | None:
    """HTTP path of its readiness; Triton's if KServe serves it with Triton's own arguments."""
    is_triton = isinstance(workload, InferenceWorkload) and workload.model and not workload.command
    return (workload.service and workload.service.ready_path) or (READY_PATH if is_triton else None)


def replicas(workload: DeploymentWorkload) -> Manifest:
    """Number of pods in the Deployment's ``spec``; empty if requests set it."""
    is_scaled = isinstance(workload, InferenceWorkload) and workload.scale
    return {} if is_scaled else {"replicas": workload.replicas}
