"""When an object counts as ready: one table from kind to a function of the live object.

A function returns `READY`, or a `Waiting` that says what is missing; ``failed`` in it means that waiting
longer is in vain. Kinds that are not in the table are ready once they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.plugins.kubernetes.replacement import group_of

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Waiting:
    """What an object still lacks; empty ``missing`` is ready."""

    missing: str = ""
    failed: bool = False

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


READY = Waiting()


def condition(manifest: Manifest, type: str) -> Mapping[str, Any]:
    """The condition of that type, or an empty one."""
    for item in (manifest.get("status") or {}).get("conditions") or ():
        if item.get("type") == type:
            found: Mapping[str, Any] = item
            return found
    return {}


def explained(item: Mapping[str, Any]) -> str:
    """Reason and message of a condition or container state, in one line."""
    parts = (str(item.get("reason") or ""), " ".join(str(item.get("message") or "").split()))
    return ": ".join(part for part in parts if part)


def _pod(pod: Manifest) -> Waiting:
    status = pod.get("status") or {}
    phase = status.get("phase") or "Pending"
    if phase == "Succeeded" or (phase == "Running" and condition(pod, "Ready").get("status") == "True"):
        return READY
    if phase == "Failed":
        return Waiting(
            f"Failed: {explained(status) or _containers(status) or 'no reason given'}", failed=True
        )
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return Waiting(f"{phase}: {explained(scheduled)}")
    return Waiting(f"{phase}: {_containers(status) or explained(condition(pod, 'Ready')) or 'not ready yet'}")


def _containers(status: Mapping[str, Any]) -> str:
    found = []
    for item in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = item.get("state") or {}
        stopped = state.get("waiting") or state.get("terminated")
        if stopped and stopped.get("exitCode") != 0:
            found.append(f"container {item['name']}: {explained(stopped) or 'stopped'}")
    return "; ".join(found)


def _observed(manifest: Manifest) -> bool:
    seen = (manifest.get("status") or {}).get("observedGeneration") or 0
    wanted = (manifest.get("metadata") or {}).get("generation") or 0
    return bool(seen >= wanted)


def _deployment(manifest: Manifest) -> Waiting:
    status, spec = manifest.get("status") or {}, manifest.get("spec") or {}
    if not _observed(manifest):
        return Waiting("the controller has not seen it yet")
    progress = condition(manifest, "Progressing")
    if progress.get("reason") == "ProgressDeadlineExceeded":
        return Waiting(explained(progress), failed=True)
    wanted = 1 if spec.get("replicas") is None else spec["replicas"]
    updated, available = status.get("updatedReplicas") or 0, status.get("availableReplicas") or 0
    if updated >= wanted and available >= wanted and (status.get("replicas") or 0) <= updated:
        return READY
    return Waiting(f"{min(updated, available)} of {wanted} replicas are available")


def _daemon_set(manifest: Manifest) -> Waiting:
    status = manifest.get("status") or {}
    if not _observed(manifest) or "desiredNumberScheduled" not in status:
        return Waiting("the controller has not seen it yet")
    wanted = status.get("desiredNumberScheduled") or 0
    updated, available = status.get("updatedNumberScheduled") or 0, status.get("numberAvailable") or 0
    on_delete = ((manifest.get("spec") or {}).get("updateStrategy") or {}).get("type") == "OnDelete"
    if available >= wanted and (updated >= wanted or on_delete):
        return READY
    return Waiting(f"{min(updated, available)} of {wanted} pods are available")


def _stateful_set(manifest: Manifest) -> Waiting:
    status, spec = manifest.get("status") or {}, manifest.get("spec") or {}
    if not _observed(manifest):
        return Waiting("the controller has not seen it yet")
    wanted = 1 if spec.get("replicas") is None else spec["replicas"]
    ready, updated = status.get("readyReplicas") or 0, status.get("updatedReplicas") or 0
    strategy = spec.get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    expected = 0 if strategy.get("type") == "OnDelete" else max(wanted - partition, 0)
    if ready >= wanted and updated >= expected:
        return READY
    return Waiting(f"{ready} of {wanted} replicas are ready, {updated} of {expected} are updated")


def _job(manifest: Manifest) -> Waiting:
    status, spec = manifest.get("status") or {}, manifest.get("spec") or {}
    failed = condition(manifest, "Failed")
    if failed.get("status") == "True":
        return Waiting(f"Failed: {explained(failed)}", failed=True)
    if condition(manifest, "Complete").get("status") == "True" or spec.get("suspend"):
        return READY
    wanted = spec.get("completions") or 1
    return Waiting(f"{status.get('succeeded') or 0} of {wanted} completions")


def _service(manifest: Manifest) -> Waiting:
    if (manifest.get("spec") or {}).get("type") != "LoadBalancer":
        return READY
    if ((manifest.get("status") or {}).get("loadBalancer") or {}).get("ingress"):
        return READY
    return Waiting("no load balancer has been given to it")


def _namespace(manifest: Manifest) -> Waiting:
    phase = (manifest.get("status") or {}).get("phase")
    return READY if phase in (None, "Active") else Waiting(f"it is {phase}")


def _claim(manifest: Manifest) -> Waiting:
    phase = (manifest.get("status") or {}).get("phase")
    return READY if phase == "Bound" else Waiting(f"it is {phase or 'Pending'}")


def _quota(manifest: Manifest) -> Waiting:
    wanted = (manifest.get("spec") or {}).get("hard") or {}
    seen = (manifest.get("status") or {}).get("hard") or {}
    missing = sorted(set(wanted) - set(seen))
    return Waiting(f"the controller has not counted {', '.join(missing)} yet") if missing else READY


def _volume(manifest: Manifest) -> Waiting:
    phase = (manifest.get("status") or {}).get("phase")
    return READY if phase in ("Available", "Bound") else Waiting(f"it is {phase or 'Pending'}")


def _of_condition(type: str) -> Callable[[Manifest], Waiting]:
    def check(manifest: Manifest) -> Waiting:
        found = condition(manifest, type)
        if found.get("status") == "True":
            return READY
        return Waiting(f"condition {type} is not true" + (f": {text}" if (text := explained(found)) else ""))

    return check


_TABLE: dict[tuple[str, str], Callable[[Manifest], Waiting]] = {
    ("", "Pod"): _pod,
    ("", "Service"): _service,
    ("", "Namespace"): _namespace,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "ResourceQuota"): _quota,
    ("", "Node"): _of_condition("Ready"),
    ("apps", "Deployment"): _deployment,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _of_condition("Established"),
    ("apiregistration.k8s.io", "APIService"): _of_condition("Available"),
}


def readiness(manifest: Manifest) -> Waiting:
    """What ``manifest``, a live object, still lacks."""
    check = _TABLE.get((group_of(str(manifest["apiVersion"])), str(manifest["kind"])))
    return check(manifest) if check else READY


def worst(pods: Iterable[Manifest]) -> str:
    """The reason of the first pod that is not ready, with its name; empty if all are."""
    for pod in sorted(pods, key=lambda item: str(item["metadata"]["name"])):
        state = _pod(pod)
        if not state.ready:
            return f"pod {pod['metadata']['name']} is {state.missing}"
    return ""
