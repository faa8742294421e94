"""Which change makes a new object necessary: one table.

It holds what the official provider (4.29 to 4.34) replaces, so that a stack behaves the same under both;
the recorded answers in ``reference/kubernetes-provider`` cover ConfigMap and Job. Content of a ConfigMap or
Secret is replaced although the server would change it in place, so that what mounts it is rolled out anew;
``enableConfigMapMutable`` and ``enableSecretMutable`` switch that off. What the table does not name is
changed in place, and if the server forbids that, the update is an error and not a replacement.
"""

from __future__ import annotations

from collections.abc import Iterable

# (group, kind) -> paths of fields; `*` is one key or index, a path covers everything below it.
_ANY = ("kind", "metadata.name", "metadata.namespace")
_TABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "ConfigMap"): ("data", "binaryData"),
    ("", "PersistentVolume"): ("spec",),
    ("", "PersistentVolumeClaim"): (
        "spec.accessModes",
        "spec.selector",
        "spec.storageClassName",
        "spec.volumeName",
    ),
    ("", "Pod"): ("spec",),
    ("", "ResourceQuota"): ("spec.scopes",),
    ("", "Secret"): ("data", "stringData", "type"),
    ("", "Service"): ("spec.clusterIP",),
    ("apps", "DaemonSet"): ("spec.selector",),
    ("apps", "Deployment"): ("spec.selector",),
    ("apps", "StatefulSet"): (
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    ("batch", "Job"): ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ("roleRef",),
    ("rbac.authorization.k8s.io", "RoleBinding"): ("roleRef",),
    # Not in the official provider's table. Room asks for it by replace_on_changes, but that is looked at once
    # the difference is known, and here the server refuses even to try it.
    ("scheduling.k8s.io", "PriorityClass"): ("preemptionPolicy", "value"),
    ("storage.k8s.io", "StorageClass"): ("parameters", "provisioner"),
}

# Where the table names a whole spec: what of it changes in place after all.
_IN_PLACE: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "PersistentVolume"): (
        "spec.accessModes",
        "spec.capacity",
        "spec.claimRef",
        "spec.mountOptions",
        "spec.nodeAffinity",
        "spec.persistentVolumeReclaimPolicy",
        "spec.storageClassName",
        "spec.volumeAttributesClassName",
        "spec.volumeMode",
    ),
    ("", "Pod"): (
        "spec.activeDeadlineSeconds",
        "spec.schedulingGates",
        "spec.tolerations",
    ),
}
_CONTENT = ("data", "binaryData", "stringData")


def group_of(api_version: str) -> str:
    """The API group; empty for the core group."""
    return api_version.rpartition("/")[0]


def replacing(api_version: str, kind: str, paths: Iterable[str], mutable: bool = False) -> list[str]:
    """Those of ``paths`` (as gpuform.plugins.kubernetes.difference writes them) that need a new object.

    ``mutable`` is whether the content of this ConfigMap or Secret may change in place.
    """
    key = (group_of(api_version), kind)
    table = (*_ANY, *_TABLE.get(key, ()))
    spared = (*_IN_PLACE.get(key, ()), *(_CONTENT if mutable else ()))
    return [
        path
        for path in paths
        if any(_covers(pattern, path) for pattern in table)
        and not any(_covers(pattern, path) for pattern in spared)
    ]


def _covers(pattern: str, path: str) -> bool:
    wanted, keys = pattern.split("."), steps(path)
    return len(keys) >= len(wanted) and all(
        one in ("*", key) for one, key in zip(wanted, keys[: len(wanted)], strict=True)
    )


def steps(path: str) -> list[str]:
    """The keys and indices of a property path, in order; a quoted key is one step."""
    found: list[str] = []
    rest = path
    while rest:
        if rest.startswith('["'):
            end = rest.index('"]')
            found.append(rest[2:end].replace('\\"', '"'))
            rest = rest[end + 2 :]
        elif rest.startswith("["):
            end = rest.index("]")
            found.append(rest[1:end])
            rest = rest[end + 1 :]
        else:
            cut = min((rest.find(mark) for mark in ".[" if mark in rest[1:]), default=len(rest))
            found.append(rest[:cut])
            rest = rest[cut:]
        rest = rest.removeprefix(".")
    return found
