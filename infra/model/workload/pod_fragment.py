"""A fragment of a pod spec that a workload adds to what gpuform writes: its shape, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError

from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.base.fields import listing
from infra.model.base.registries import PinnedImage

CONTAINERS = ("containers", "initContainers")
FIELDS = frozenset(
    (
        *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig"),
        *("dnsPolicy", "enableServiceLinks", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers"),
        *("hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeSelector"),
        *("preemptionPolicy", "priorityClassName", "readinessGates", "resourceClaims", "resources"),
        *("restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "securityContext"),
        *("serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain"),
        *("terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes"),
    )
)
"""Of a PodSpec (Kubernetes 1.36), without alpha ones and those that place a pod past the scheduler."""
CONTAINER_FIELDS = frozenset(
    (
        *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe"),
        *("name", "ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy"),
        *("restartPolicyRules", "securityContext", "startupProbe", "stdin", "stdinOnce"),
        *("terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices", "volumeMounts"),
        "workingDir",
    )
)
_NO_IMAGE = "is no image", "write it with a tag or digest"


@cache
def _image() -> TypeAdapter[str]:
    """Built when first used: that takes as long as a tenth of all imports of the model."""
    return TypeAdapter(PinnedImage)


def _check(fragment: dict[str, Any]) -> dict[str, Any]:
    _check_fields(fragment, FIELDS, "")
    names: set[str] = set()
    for kind in CONTAINERS:
        found = fragment.get(kind, [])
        if not isinstance(found, list):
            raise InputError(kind, "is no list", "write a list of containers, each with a name")
        for index, container in enumerate(found):
            _check_container(container, f"{kind}[{index}]")
            if container["name"] in names:
                raise InputError(f"{kind}[{index}].name", "names two containers", "give each its own name")
            names.add(container["name"])
    volumes = fragment.get("volumes", [])
    if not isinstance(volumes, list) or not all(
        isinstance(item, Mapping) and "name" in item for item in volumes
    ):
        raise InputError("volumes", "is no list of volumes with names", "write it as in a pod's spec")
    return fragment


def _check_fields(value: Any, known: frozenset[str], path: str) -> None:
    if not isinstance(value, Mapping):
        raise InputError(path, "is no mapping", "write it as in a pod's spec")
    for key in value:
        if key not in known:
            raise InputError(
                f"{path}.{key}".removeprefix("."),
                "is not a field that can be set here",
                listing(sorted(known), str(key)),
            )


def _check_container(container: Any, path: str) -> None:
    _check_fields(container, CONTAINER_FIELDS, path)
    if not isinstance(container.get("name"), str):
        raise InputError(f"{path}.name", "is missing", "the workload's own container has the workload's name")
    if "image" in container:
        try:
            _image().validate_python(container["image"])
        except ValidationError as error:
            reason = error.errors()[0].get("ctx", {}).get("error")
            fact, remedy = (reason.fact, reason.remedy) if isinstance(reason, InputError) else _NO_IMAGE
            raise InputError(f"{path}.image", fact, remedy) from None
    for side, name in _resources(container):
        if name.startswith(labels.NVIDIA_PREFIX):
            remedy = "use the workload's count and slice; a pod's GPUs are requested by its first container"
            raise InputError(f"{path}.resources.{side}.{name}", "GPUs are not requested here", remedy)
    variables = container.get("env", [])
    for index, variable in enumerate(variables if isinstance(variables, list) else ()):
        if isinstance(variable, Mapping) and variable.get("name") == "NVIDIA_VISIBLE_DEVICES":
            remedy = "leave it out, and request what the pool offers"
            raise InputError(f"{path}.env[{index}]", "it bypasses the scheduler", remedy)


def _resources(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    resources = container.get("resources", {})
    for side in ("requests", "limits"):
        amounts = resources.get(side, {}) if isinstance(resources, Mapping) else {}
        yield from ((side, str(name)) for name in (amounts if isinstance(amounts, Mapping) else ()))


PodFragment = Annotated[dict[str, Any], AfterValidator(_check)]
