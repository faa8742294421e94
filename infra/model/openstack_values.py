"""Types of the values of an OpenStack environment (names, labels, versions), each validated on its own.

Ranges are those of Magnum's API (its source of 2026-07, api/controllers/v1).
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from infra.model.base import Strict, matching, refusing
from infra.model.errors import InputError
from infra.model.values import Supported, Text

MASTER_ROLE = "master"

_LONGEST_LABEL = 255
_VALUES = {
    "auto_healing_controller": ("draino", "magnum-auto-healer"),
    "calico_ipv4pool_ipip": ("Always", "CrossSubnet", "Never", "Off"),
    "cgroup_driver": ("systemd", "cgroupfs"),
    "container_runtime": ("containerd",),
    "flannel_backend": ("udp", "vxlan", "host-gw"),
    "ingress_controller": ("traefik", "nginx", "octavia"),
    "selinux_mode": ("enforcing", "permissive", "disabled"),
}
"""Labels with a few values, or empty for the driver's own (Magnum's user guide, "Labels")."""
_BOOLEANS = ("0", "1", "f", "false", "n", "no", "off", "on", "t", "true", "y", "yes")
"""Words for true and false (oslo.utils, ``bool_from_string``)."""


def _as_text(value: Any) -> Any:
    """Magnum's labels are strings; YAML reads true and 20 as other types, and 1.30 as 1.3 (refused)."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _labels(values: dict[str, str]) -> dict[str, str]:
    """Refuse values of another type than the label's name says (Magnum's user guide, "Labels")."""
    for key, value in values.items():
        if len(value) > _LONGEST_LABEL or _has_control_characters(value):
            fact = "is too long, or has control characters"
            raise InputError(key, fact, f"use at most {_LONGEST_LABEL} characters on one line")
        if key.endswith("_enabled") and value.strip().lower() not in _BOOLEANS:
            raise InputError(key, f"{value!r} is neither true nor false", "use true or false")
        if key.endswith(("_size", "_count")) and not re.fullmatch("[0-9]{1,9}", value):
            raise InputError(key, f"{value!r} is not a whole number", "write a number, of GiB for volumes")
        if value and key in _VALUES and value not in _VALUES[key]:
            raise InputError(key, f"{value!r} is not known", f"use {' or '.join(_VALUES[key])}")
        if key.endswith(("_prefix", "_provider", "_tag")) and re.search(r"\s", value):
            raise InputError(key, f"{value!r} has blanks", "write one word")
    _check_networks(values)
    lower, upper = (
        int(values.get(f"{bound}_node_count", default)) for bound, default in (("min", 0), ("max", 10**9))
    )
    if lower > upper:
        raise InputError("max_node_count", f"{upper} is less than min_node_count, {lower}", "correct one")
    return values


def _check_networks(values: dict[str, str]) -> None:
    """Nodes, pods and Services each have a network of their own (kube-apiserver, kube-controller-manager)."""
    networks: dict[str, Any] = {}
    for key, value in values.items():
        if not key.endswith(("_cidr", "_ipv4pool", "_ip_range")):
            continue
        try:
            network = ipaddress.ip_network(value if "/" in value else "")
        except ValueError:
            raise InputError(key, f"{value!r} is not a network", "write it as 10.0.0.0/24") from None
        for other, known in networks.items():
            if network.overlaps(known):
                raise InputError(key, f"{value} and {other} overlap", "use networks apart from each other")
        networks[key] = network


def _has_control_characters(value: str) -> bool:
    return any(ord(char) < 32 or ord(char) == 127 for char in value)


_check_name = refusing(
    lambda value: not value.strip() or len(value) > 255 or _has_control_characters(value),
    "{!r} is not a name in OpenStack",
    "give a name or an id, 255 characters at most",
)
OpenstackName = Annotated[Strict, Field(min_length=1), _check_name]
"""Name or id of an OpenStack object; preflight checks that it exists."""
ImageName = Annotated[
    Strict,
    Field(min_length=1),
    refusing(
        lambda value: set(value) & {*"/@"},
        "{!r} is a container image",
        "name an image of Glance, which the nodes boot from",
    ),
    _check_name,
]
_LabelKey = Annotated[
    Strict, matching("[A-Za-z0-9][-A-Za-z0-9_./]*", "a label of Magnum's", "write it as boot_volume_size")
]
_LabelText = Annotated[Text, BeforeValidator(_as_text, json_schema_input_type=str | int | bool)]
MagnumLabels = Annotated[dict[_LabelKey, _LabelText], AfterValidator(_labels)]
MinorVersion = Annotated[
    Strict, matching(r"1\.[1-9][0-9]?", "a minor version of Kubernetes", 'write it as "1.30"'), Supported
]
Role = Annotated[
    Strict,
    refusing(
        lambda value: value == MASTER_ROLE,
        "Magnum keeps the role master for the control plane",
        "use another role",
    ),
    matching(
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        "a valid value of a node's role label",
        "use at most 63 of a-z, 0-9 and -",
        63,
    ),
]
