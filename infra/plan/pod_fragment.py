"""Merges a workload's fragment of a pod spec into the spec that gpuform writes.

As in a strategic merge, entries of lists are merged by their name, port or path, and others are added. What
gpuform sets stays: another value of the same field is an error that names both keys. Its security contexts
and the missing token are defaults, which a fragment replaces; Pod Security then decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.workload.pod_fragment import CONTAINERS
from infra.model.workload.workload import Workload
from infra.plan import pod_security
from infra.plan.manifest import Manifest
from infra.plan.pod_security import object_at

_NAMED_BY: Mapping[str, str] = {
    **dict.fromkeys((*CONTAINERS, "volumes", "env", "imagePullSecrets", "resourceClaims"), "name"),
    **{
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
        "ports": "containerPort",
        "hostAliases": "ip",
    },
}
"""Lists of objects, and what tells their entries apart (patchMergeKey in k8s.io/api, core/v1/types.go)."""
CONFINED: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Default security context of every container of a workload."""
_ADDED = ("tolerations", "topologySpreadConstraints", "envFrom", "readinessGates", "schedulingGates")
"""Other lists of which both sides have their entries."""
_KEYS = (
    ("resources.requests.cpu", "cpu"),
    ("resources", "memory"),
    ("image", "image"),
    ("command", "command"),
    ("env", "env"),
    ("volumeMounts", "shm, hugepages or home"),
    ("volumes", "shm or hugepages"),
    ("ports", "service"),
    ("readinessProbe", "service.ready_path"),
    ("nodeSelector", "pool"),
    ("affinity", "gpu"),
    ("schedulerName", "scheduling.packer"),
    ("runtimeClassName", "runtime_class"),
    ("priorityClassName", "priority"),
    ("restartPolicy", "kind"),
    ("subdomain", "indexed"),
)
"""Keys of a workload by the field that they set, or its last part."""


def merged(env: Environment, work: Workload, spec: Manifest) -> Manifest:
    """The pod spec with the workload's fragment. Raises InputError with a path that begins with ``pod``."""
    if not work.pod:
        return spec
    fragment = deepcopy(work.pod)
    for kind in CONTAINERS:
        for index, container in enumerate(fragment.get(kind, ())):
            if kind == "initContainers" and container["name"] == work.name:
                fact = "is the name of the workload's own container"
                raise InputError(f"pod.{kind}[{index}].name", fact, "use another name")
            if "image" in container:
                container["image"] = env.image(container["image"])
    return _merge(_without_defaults(spec, fragment), fragment, "pod", "")


def check(env: Environment, work: Workload, spec: Manifest) -> None:
    """Raise InputError if the merged pods are not admitted in their namespace."""
    level = pod_security.levels(env).get(work.namespace)
    if level is None or not (work.pod or work.rdma):
        return
    containers = [
        ((kind, index), container)
        for kind in CONTAINERS
        for index, container in enumerate(spec.get(kind, ()))
    ]
    for keys, fact in pod_security.violations(spec, containers, level):
        if work.pod:
            path = "pod" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
            change, needed = "change it", "LEVEL"
        else:
            path, change, needed = "rdma", "leave it out", "privileged"
        remedy = f"{change}, or declare namespaces: [{{name: {work.namespace}, pod_security: {needed}}}]"
        raise InputError(path, f"{fact}, and namespace {work.namespace} has pod_security {level}", remedy)


def _without_defaults(spec: Manifest, fragment: Mapping[str, Any]) -> Manifest:
    """The spec without defaults that the fragment replaces, or that contradict what it says."""
    result = {**spec, "securityContext": _context(spec, fragment)}
    if {"automountServiceAccountToken", "serviceAccountName"} & fragment.keys():
        result.pop("automountServiceAccountToken", None)
    (own,) = spec["containers"]
    others = [container for kind in CONTAINERS for container in fragment.get(kind, ())]
    if any(object_at(container, "securityContext").get("runAsUser") == 0 for container in others):
        result["securityContext"].pop("runAsNonRoot", None)
    given: Mapping[str, Any] = next((item for item in others if item["name"] == own["name"]), {})
    result["containers"] = [{**own, "securityContext": _context(own, given)}]
    for container in others:
        context = container.get("securityContext", {})
        is_plain = isinstance(context, Mapping) and isinstance(context.get("capabilities", {}), Mapping)
        if container is not given and is_plain:
            capabilities = {**deepcopy(CONFINED["capabilities"]), **object_at(context, "capabilities")}
            defaults = _context({"securityContext": CONFINED}, container)
            container["securityContext"] = {**defaults, **context, "capabilities": capabilities}
    return result


def _context(owner: Mapping[str, Any], fragment: Mapping[str, Any]) -> Manifest:
    """Root, and privileged containers, cannot have the defaults that forbid them."""
    given = object_at(fragment, "securityContext")
    replaced = {*given} - {"capabilities"}
    if given.get("runAsUser") == 0:
        replaced.add("runAsNonRoot")
    if given.get("privileged"):
        replaced.add("allowPrivilegeEscalation")
    kept = {key: value for key, value in owner["securityContext"].items() if key not in replaced}
    if "capabilities" in kept and "drop" in object_at(given, "capabilities"):
        kept["capabilities"] = {}
    return kept


def _merge(own: Mapping[str, Any], given: Any, path: str, field: str) -> Manifest:
    """Our object with what is given; ``field`` is the field that holds it, without names of entries."""
    if not isinstance(given, Mapping):
        raise InputError(path, "is no mapping", "write it as in a pod's spec")
    result = dict(own)
    for key, value in given.items():
        at, inner = f"{path}.{key}", f"{field}.{key}".removeprefix(".")
        result[key] = _value(own[key], value, at, inner) if key in own else value
    return result


def _value(own: Any, given: Any, path: str, field: str) -> Any:
    last = field.rpartition(".")[2]
    if isinstance(own, Mapping):
        return _merge(own, given, path, field)
    if isinstance(own, list) and isinstance(given, list):
        if last in _NAMED_BY:
            return _by_name(own, given, path, field, _NAMED_BY[last])
        if last in _ADDED:
            return [*own, *(item for item in given if item not in own)]
    if own != given:
        fact = f"is {_shown(given)}, and gpuform sets {_shown(own)}"
        raise InputError(path, fact, f"leave it out{_set_by(field)}")
    return own


def _by_name(own: list[Any], given: list[Any], path: str, field: str, name: str) -> list[Any]:
    result = {item[name]: item for item in own}
    for index, item in enumerate(given):
        key = item.get(name) if isinstance(item, Mapping) else None
        if not isinstance(key, str | int):
            raise InputError(f"{path}[{index}]", f"has no {name}", f"give it a {name}")
        known = result.get(key)
        result[key] = _merge(known, item, f"{path}[{index}]", field) if known else item
    return list(result.values())


def _set_by(field: str) -> str:
    for suffix, key in _KEYS:
        if field.endswith(suffix) or f".{suffix}." in f".{field}.":
            return f", or change the workload's {key}"
    return ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
