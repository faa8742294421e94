"""Finds the pod template in the kinds that have one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from policies import contract
from policies.rule import Resource, get, items, mapping

_TEMPLATE: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "BlueGreen": ("deployment", "spec", "template"),
}


def template(resource: Resource) -> Any:
    """The pod or the template of pods in a resource (with ``metadata`` and ``spec``); None in other kinds."""
    if resource.type not in contract.PODS:
        return None
    if resource.type == contract.INFERENCE:
        return _predictors(resource.props)
    return get(resource.props, *_TEMPLATE[resource.type.rsplit(":", 1)[-1]])


def _predictors(props: Any) -> dict[str, Any]:
    """The pod of a KServe InferenceService: ``predictor`` is a pod spec, with its container by framework."""
    predictor, top = mapping(props, "spec", "predictor"), mapping(props, "metadata")
    model_containers = [
        {"name": "kserve-container", **container}
        for container in predictor.values()
        if {"env", "image", "resources"} & set(mapping(container))
    ]
    metadata = {key: {**mapping(top, key), **mapping(predictor, key)} for key in ("labels", "annotations")}
    return {
        "metadata": metadata,
        "spec": {**predictor, "containers": [*items(predictor, "containers"), *model_containers]},
    }


def containers(resource: Resource) -> Iterator[Any]:
    """Every container of the pod, init and ephemeral containers included."""
    pod = template(resource)
    for key in ("initContainers", "containers", "ephemeralContainers"):
        yield from items(pod, "spec", key)


def namespace(resource: Resource) -> str:
    """The resource's namespace, ``default`` if unset; of a Namespace its name."""
    if resource.type == contract.NAMESPACE:
        return str(get(resource.props, "metadata", "name"))
    prefix = ("deployment",) if resource.type == contract.BLUE_GREEN else ()
    return str(get(resource.props, *prefix, "metadata", "namespace") or "default")
