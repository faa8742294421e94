"""What the levels of Pod Security refuse in pods with GPUs.

The checks and their versions: kubernetes.io/docs/concepts/security/pod-security-standards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.manifests.documents import Keys, entries, mapping_at
from gpuform.manifests.pods import FoundPod
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import quotas

_VOLUMES = frozenset(
    (
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"),
        *("secret", "image"),
    )
)
_BASELINE_CAPABILITIES = frozenset(
    (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)


def levels(env: Environment) -> dict[str, str]:
    """Pod Security level of each namespace that the stack creates."""
    return {
        item["metadata"]["name"]: item["metadata"]["labels"][labels.PSA_ENFORCE]
        for item in quotas.namespaces(env)
    }


def violations(pod: FoundPod, level: str) -> Iterator[tuple[Keys, str]]:
    """Where a pod violates the level, and how."""
    if level == "privileged":
        return
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.spec.get(key):
            yield (*pod.at, key), f"has {key}"
    for index, volume in enumerate(entries(pod.spec, "volumes")):
        kinds = {*volume} - {"name"} if isinstance(volume, Mapping) else set()
        if "hostPath" in kinds or (level == "restricted" and kinds - _VOLUMES):
            yield (*pod.at, "volumes", index), f"has a volume of kind {', '.join(sorted(kinds - _VOLUMES))}"
    context = mapping_at(pod.spec, ("securityContext",))
    for container in pod.containers:
        if container.at[-1] == "gpu":
            continue
        own = mapping_at(container.value, ("securityContext",))
        at = (*container.at[:-1], "securityContext")
        yield from ((at, f"container {container.name} {fact}") for fact in _container(own, context, level))


def _container(own: Mapping[str, Any], pod: Mapping[str, Any], level: str) -> Iterator[str]:
    capabilities = mapping_at(own, ("capabilities",))
    added = {str(item) for item in entries(capabilities, "add")}
    allowed = {"NET_BIND_SERVICE"} if level == "restricted" else _BASELINE_CAPABILITIES
    if own.get("privileged"):
        yield "is privileged"
    if added - allowed:
        yield f"adds {', '.join(sorted(added - allowed))}"
    if level != "restricted":
        return
    if "ALL" not in entries(capabilities, "drop"):
        yield "does not drop ALL capabilities"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "does not set allowPrivilegeEscalation: false"
    if not own.get("runAsNonRoot", pod.get("runAsNonRoot")):
        yield "does not set runAsNonRoot: true"
    if own.get("runAsUser", pod.get("runAsUser")) == 0:
        yield "runs as user 0"
    profile = (mapping_at(own, ("seccompProfile",)) or mapping_at(pod, ("seccompProfile",))).get("type")
    if profile not in ("RuntimeDefault", "Localhost"):
        yield "has no seccompProfile"
