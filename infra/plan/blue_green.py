"""Blue-green Deployments: manifests that the provider's workflow and the rendered files share.

Imports only label keys, because the plugin that runs the workflow is a process started for every update.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from infra.model.base import labels

Manifest = dict[str, Any]


def deployment_name(deployment: Mapping[str, Any], colour: str) -> str:
    """Name of the Deployment of one colour."""
    return f"{deployment['metadata']['name']}-{colour}"


def template_hash(deployment: Mapping[str, Any]) -> str:
    """Hash of the pod template: equal if the pods are the same, whatever the number of replicas."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_colour(deployment: Mapping[str, Any], colour: str, replicas: int) -> Manifest:
    """The Deployment of one colour with ``replicas`` replicas; ``deployment`` has no colour and all replicas.

    Recreate: the template changes only while it has no pods, and an extra pod must never start.
    """
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    colour_label = {labels.COLOUR: colour}
    annotations = {labels.TEMPLATE: template_hash(deployment), labels.FULL: str(spec["replicas"])}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            **metadata,
            "name": deployment_name(deployment, colour),
            "labels": {**metadata.get("labels", {}), **colour_label},
            "annotations": {**metadata.get("annotations", {}), **annotations},
        },
        "spec": {
            **spec,
            "replicas": replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {**spec["selector"]["matchLabels"], **colour_label}},
            "template": {
                **template,
                "metadata": {
                    **template["metadata"],
                    "labels": {**template["metadata"].get("labels", {}), **colour_label},
                },
            },
        },
    }


def select_colour(service: Mapping[str, Any], colour: str) -> Manifest:
    """The Service, selecting the pods of one colour."""
    spec = service["spec"]
    return {**service, "spec": {**spec, "selector": {**spec["selector"], labels.COLOUR: colour}}}
