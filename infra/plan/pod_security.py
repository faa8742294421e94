"""What the levels of Pod Security refuse.

The checks and their versions: kubernetes.io/docs/concepts/security/pod-security-standards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import quotas

Keys = tuple[str | int, ...]
Object = Mapping[str, Any]
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
    """Level of each namespace that the stack creates."""
    return {
        item["metadata"]["name"]: item["metadata"]["labels"][labels.PSA_ENFORCE]
        for item in quotas.namespaces(env)
    }


def violations(
    spec: Object, containers: Iterable[tuple[Keys, Object]], level: str
) -> Iterator[tuple[Keys, str]]:
    """Where a pod spec violates the level, and how; ``containers`` with where each is written."""
    if level == "privileged":
        return
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield (key,), f"has {key}"
    for index, volume in enumerate(_list(spec, "volumes")):
        kinds = {*volume} - {"name"} if isinstance(volume, Mapping) else set()
        if "hostPath" in kinds or (level == "restricted" and kinds - _VOLUMES):
            yield ("volumes", index), f"has a volume of kind {', '.join(sorted(kinds - _VOLUMES))}"
    context = object_at(spec, "securityContext")
    for keys, container in containers:
        own, name = object_at(container, "securityContext"), container.get("name") or ""
        for fact in _container(own, context, level):
            yield (*keys, "securityContext"), f"container {name} {fact}"


def _list(value: Object, key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def object_at(value: Object, key: str) -> Object:
    """The object under a key; empty if there is something else."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _container(own: Object, pod: Object, level: str) -> Iterator[str]:
    capabilities = object_at(own, "capabilities")
    added = {str(item) for item in _list(capabilities, "add")}
    allowed = {"NET_BIND_SERVICE"} if level == "restricted" else _BASELINE_CAPABILITIES
    if own.get("privileged"):
        yield "is privileged"
    if added - allowed:
        yield f"adds {', '.join(sorted(added - allowed))}"
    if level != "restricted":
        return
    if "ALL" not in _list(capabilities, "drop"):
        yield "does not drop ALL capabilities"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "does not set allowPrivilegeEscalation: false"
    if not own.get("runAsNonRoot", pod.get("runAsNonRoot")):
        yield "does not set runAsNonRoot: true"
    if own.get("runAsUser", pod.get("runAsUser")) == 0:
        yield "runs as user 0"
    profile = (object_at(own, "seccompProfile") or object_at(pod, "seccompProfile")).get("type")
    if profile not in ("RuntimeDefault", "Localhost"):
        yield "has no seccompProfile"
