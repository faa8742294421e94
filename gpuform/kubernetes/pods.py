"""Why a pod is not ready, what makes it, and what it requests from its node, by the scheduler's rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.model.base.quantities import is_sidecar, total_requests

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Controller:
    """What makes pods; a pod without one is its own."""

    namespace: str
    kind: str
    name: str


def by_controller(pods: Iterable[Manifest]) -> dict[Controller, list[Manifest]]:
    """Pods by their controller; those of a Deployment's ReplicaSets together, as they have its name."""
    found: dict[Controller, list[Manifest]] = {}
    for pod in sorted(pods, key=lambda item: (item["metadata"]["namespace"], item["metadata"]["name"])):
        meta = pod["metadata"]
        owners = [one for one in meta.get("ownerReferences") or () if one.get("controller")]
        kind, name = (owners[0]["kind"], owners[0]["name"]) if owners else ("Pod", meta["name"])
        revision = (meta.get("labels") or {}).get("pod-template-hash", "")
        owner = Controller(meta["namespace"], kind, name.removesuffix(f"-{revision}") if revision else name)
        found.setdefault(owner, []).append(pod)
    return found


def condition(manifest: Manifest, type: str) -> Mapping[str, Any]:
    for item in (manifest.get("status") or {}).get("conditions") or ():
        if item.get("type") == type:
            result: Mapping[str, Any] = item
            return result
    return {}


def queued_object(workload: Manifest) -> Mapping[str, Any]:
    """What one of Kueue's Workloads stands for, with kind, name and uid; itself without an owner."""
    metadata = workload["metadata"]
    return next(iter(metadata.get("ownerReferences") or ()), {"kind": "Workload", **metadata})


def format_reason(item: Mapping[str, Any]) -> str:
    """Reason and message of a condition or container state, in one line."""
    parts = (str(item.get("reason") or ""), " ".join(str(item.get("message") or "").split()))
    return ": ".join(part for part in parts if part)


def not_ready_reason(pod: Manifest) -> str:
    """What a pod waits for, or why it failed; empty if it is ready or has succeeded."""
    status = pod.get("status") or {}
    phase = status.get("phase") or "Pending"
    if phase == "Succeeded" or (phase == "Running" and condition(pod, "Ready").get("status") == "True"):
        return ""
    if phase == "Failed":
        return f"Failed: {format_reason(status) or _containers(status) or 'no reason given'}"
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"{phase}: {format_reason(scheduled)}"
    return f"{phase}: {_containers(status) or format_reason(condition(pod, 'Ready')) or 'not ready yet'}"


def first_not_ready(pods: Iterable[Manifest]) -> str:
    """The reason of the first pod that is not ready, with its name; empty if all are."""
    for pod in sorted(pods, key=lambda item: str(item["metadata"]["name"])):
        if reason := not_ready_reason(pod):
            return f"pod {pod['metadata']['name']} is {reason}"
    return ""


def _containers(status: Mapping[str, Any]) -> str:
    reasons = []
    for item in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = item.get("state") or {}
        stopped = state.get("waiting") or state.get("terminated")
        if stopped and stopped.get("exitCode") != 0:
            reasons.append(f"container {item['name']}: {format_reason(stopped) or 'stopped'}")
    return "; ".join(reasons)


def sum_requests(spec: Manifest, requests_of: Callable[[Manifest], Mapping[str, Any]]) -> Counter[str]:
    """What a pod requests; ``requests_of`` returns what one container does."""
    running = map(requests_of, spec.get("containers") or ())
    init = ((is_sidecar(item), requests_of(item)) for item in spec.get("initContainers") or ())
    return total_requests(running, init)
