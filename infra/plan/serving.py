"""Service, port and update strategy of a Deployment, as Kubernetes manifests."""

from __future__ import annotations

from typing import Any

from infra.model import labels
from infra.model.rollout import Recreate, Rolling, Surge
from infra.model.workload import DeploymentWorkload, Workload

_PORT = "serving"

Manifest = dict[str, Any]


def service(workload: Workload, metadata: Manifest) -> Manifest | None:
    """The Service of a workload, if it declares one; it targets the container's port by name."""
    if not isinstance(workload, DeploymentWorkload) or workload.service is None:
        return None
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
