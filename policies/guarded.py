"""A rule over the setting that lets containers see GPUs which they have not requested.

NVIDIA's runtime reads NVIDIA_VISIBLE_DEVICES of every container unless its configuration has
``accept-nvidia-visible-devices-envvar-when-unprivileged = false`` (nvidia-container-toolkit 1.19.1,
``internal/config/image/cuda_image.go``), in the modes auto, cdi and jit-cdi alike. Any pod can select that
runtime by its RuntimeClass, and nodeadm makes it the default on AL2023 (amazon-eks-ami,
``nodeadm/internal/containerd/runtime_config_nvidia.go``). Bottlerocket's default is false.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence

from policies import contract
from policies.node_pools import has_gpus
from policies.operator import OPERATOR
from policies.rule import Resource, Rule, chart_of, get, items, text

_VARIABLE = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
_SETTING = re.compile(r"visible-devices-envvar-when-unprivileged\s*=\s*(true|false)")


def _guarded(resource: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    if resource.type == contract.RELEASE:
        yield from _by_operator(resource)
    elif resource.type == contract.NODE_GROUP:
        if has_gpus(resource):
            yield from _by_image(_group_user_data(resource, resources), text(resource.props, "amiType"))
    elif any(_uses_class(other, resource) for other in resources):
        spec = get(resource.props, "spec")
        yield from _by_image(text(spec, "userData"), text(spec, "amiFamily"))


def _by_operator(release: Resource) -> Iterator[str]:
    if chart_of(release) != OPERATOR or get(release.props, "values", "toolkit", "enabled") is False:
        return
    variables = items(release.props, "values", "toolkit", "env")
    env = {text(variable, "name"): text(variable, "value") for variable in variables}
    if env.get(_VARIABLE) != "false":
        yield f"toolkit.env does not set {_VARIABLE} to false"


def _by_image(user_data: str, image: str) -> Iterator[str]:
    values = _SETTING.findall(user_data)
    bottlerocket = image.upper().startswith("BOTTLEROCKET") or user_data.startswith("[settings.")
    if "true" in values:
        yield "user data lets unprivileged containers see GPUs by NVIDIA_VISIBLE_DEVICES"
    elif not values and not bottlerocket:
        yield "user data does not set accept-nvidia-visible-devices-envvar-when-unprivileged to false"


def _uses_class(pool: Resource, node_class: Resource) -> bool:
    """Whether the resource is a NodePool with GPUs that uses that class."""
    if pool.type != contract.NODE_POOL or not has_gpus(pool):
        return False
    class_name = text(pool.props, "spec", "template", "spec", "nodeClassRef", "name")
    return class_name == text(node_class.props, "metadata", "name")


def _group_user_data(group: Resource, resources: Sequence[Resource]) -> str:
    """User data from the launch template, which has the group's name."""
    for other in resources:
        if other.type == contract.LAUNCH_TEMPLATE and other.name == group.name:
            return base64.b64decode(text(other.props, "userData")).decode()
    return ""


RULES = (
    Rule(
        "gpus-guarded",
        "A container that requests no GPU sees none, whatever NVIDIA_VISIBLE_DEVICES it sets.",
        "critical",
        "set accept-nvidia-visible-devices-envvar-when-unprivileged to false: in toolkit.env of the operator "
        "or in the nodes' user data",
        (contract.RELEASE, contract.NODE_CLASS, contract.NODE_GROUP),
        _guarded,
        whole_stack=True,
    ),
)
