"""What runs in DaemonSets and Deployments: their images, and whether NVIDIA's operator has made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DEVICE_PLUGINS = ("k8s-device-plugin",)
"""Names of the images of NVIDIA's device plugin."""
Json = Mapping[str, Any]


def is_operator_owned(item: Json) -> bool:
    """Whether NVIDIA's operator has made the object."""
    return any(owner["kind"] == "ClusterPolicy" for owner in item["metadata"].get("ownerReferences") or ())


def containers(item: Json) -> Sequence[Json]:
    """Containers of a DaemonSet or Deployment."""
    result: Sequence[Json] = item["spec"]["template"]["spec"]["containers"]
    return result


def image_name(container: Json) -> str:
    """The last part of its image's name, without tag and digest."""
    return str(container["image"]).partition("@")[0].rpartition("/")[2].partition(":")[0]


def has_image(item: Json, images: Sequence[str]) -> bool:
    """Whether a container of the object has an image of one of these names."""
    return any(image_name(container) in images for container in containers(item))
