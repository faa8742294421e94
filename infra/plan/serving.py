"""How a Deployment's pods are reached, and how new ones replace them, in Kubernetes' words."""

from __future__ import annotations

from typing import Any

from infra.model import labels
from infra.model.rollout import Recreate, Rolling, Surge
from infra.model.workload import DeploymentWorkload, Workload

_PORT = "serving"

Manifest = dict[str, Any]


def service(workload: Workload, metadata: Manifest) -> Manifest | None:
    """The Service in front of a workload's pods, if it has one; it finds the container's port by its name."""
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
    """Where the cluster's pods reach its Service; empty without one."""
    host = f"{workload.name}.{workload.namespace}.svc"
    return f"{host}:{workload.service.port}" if workload.service else ""


def strategy(workload: DeploymentWorkload, scarce: bool) -> Manifest:
    """Its update in the words of Kubernetes; none for its default, and for what our provider does.

    ``scarce``: its GPUs are of a fixed number, and a new pod that came first might wait for one for ever.
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
    """The container's port and when it can serve, where a Service is in front of it."""
    if not isinstance(workload, DeploymentWorkload) or workload.service is None:
        return {}
    listens = workload.service.container_port
    found: Manifest = {"ports": [{"name": _PORT, "containerPort": listens, "protocol": "TCP"}]}
    if workload.service.ready_path:
        found["readinessProbe"] = {"httpGet": {"path": workload.service.ready_path, "port": _PORT}}
    return found
