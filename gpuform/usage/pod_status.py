"""Pods as a status shows them: phase, reason if they are not in order, and the GPUs that they request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.kubernetes.pods import requested
from gpuform.usage.claims import Claims
from infra.model import labels
from infra.model.quantity import whole


@dataclass(frozen=True)
class PodStatus:
    """One pod; ``reason`` is empty if the pod is in order; ``requests`` counts GPUs as NodeStatus does."""

    namespace: str
    name: str
    node: str | None
    phase: str
    reason: str
    requests: dict[str, int]


def pod_status(pod: Mapping[str, Any], claims: Claims) -> PodStatus:
    status, spec = pod.get("status", {}), pod["spec"]
    requests = requested(spec, lambda one: gpu_resources(one.get("resources", {}).get("limits", {})))
    requests.update(claims.of_pod(pod))
    return PodStatus(
        namespace=pod["metadata"]["namespace"],
        name=pod["metadata"]["name"],
        node=spec.get("nodeName"),
        phase=status.get("phase", "Unknown"),
        reason=_reason(status),
        requests=dict(sorted(requests.items())),
    )


def _reason(status: Mapping[str, Any]) -> str:
    """Why a pod is not in order: its own reason, a waiting container's, or the scheduler's message."""
    if status.get("reason"):
        return ": ".join(filter(None, (status["reason"], status.get("message"))))
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason"):
            return str(waiting["reason"])
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
    return ""


def gpu_resources(resources: Mapping[str, Any]) -> dict[str, int]:
    return {key: whole(resources[key]) for key in sorted(resources) if key.startswith(labels.NVIDIA_PREFIX)}
