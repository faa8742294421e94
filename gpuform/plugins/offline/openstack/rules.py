"""What Magnum's API refuses, as far as it needs no other service to know.

Sources: magnum/api/controllers/v1/{cluster,nodegroup,cluster_template}.py (bounds, patterns, node counts),
magnum/api/attr_validator.py (several masters), magnum/api/validation.py (drivers, server types),
magnum/drivers/common/driver.py (odd masters), of the master branch of 2026-08.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.offline.openstack.row import Failures, Rule

_CLUSTER_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]*")
_LONGEST_CLUSTER_NAME = 242
_LONGEST = 255
_MADE_BY_MAGNUM = ("default-master", "default-worker")

Inputs = Mapping[str, Any]


def bounds(**least_most: tuple[int, int | None]) -> Rule:
    """Numbers within bounds, both ends included; None is no bound."""

    def rule(inputs: Inputs) -> Failures:
        for name, (least, most) in least_most.items():
            value = inputs.get(name)
            if value is None:
                continue
            if value < least:
                yield name, f"{value} is too small; {least} is the least"
            if most is not None and value > most:
                yield name, f"{value} is too large; {most} is the most"

    return rule


def one_of(**allowed: tuple[str, ...]) -> Rule:
    """Texts of which there are few."""

    def rule(inputs: Inputs) -> Failures:
        for name, known in allowed.items():
            value = inputs.get(name)
            if value is not None and value not in known:
                yield name, f"{value!r} is not known to Magnum; it knows {', '.join(known)}"

    return rule


def cluster_name(inputs: Inputs) -> Failures:
    """Heat's limit on the name of a stack, less what Magnum puts behind it."""
    name = inputs.get("name")
    if name is None:
        return
    if len(name) > _LONGEST_CLUSTER_NAME:
        yield "name", f"{len(name)} characters are too many; {_LONGEST_CLUSTER_NAME} is the most"
    elif not _CLUSTER_NAME.fullmatch(name):
        yield "name", f"{name!r} does not match {_CLUSTER_NAME.pattern}"


def name(inputs: Inputs) -> Failures:
    """Of node groups and templates."""
    if not 0 < len(inputs.get("name", "x")) <= _LONGEST:
        yield "name", f"has to have 1 to {_LONGEST} characters"


def masters(inputs: Inputs) -> Failures:
    """An odd number of them, for etcd's sake; several only behind a load balancer."""
    count = inputs.get("masterCount", 1)
    if count % 2 == 0:
        yield "masterCount", f"{count} is even; Magnum takes an odd number of masters"
    elif count > 1 and inputs.get("masterLbEnabled") is False:
        yield "masterCount", f"{count} masters need masterLbEnabled"


def group_size(inputs: Inputs) -> Failures:
    """minNodeCount <= nodeCount <= maxNodeCount, as Magnum checks it when a group is made and changed."""
    least, count, most = inputs.get("minNodeCount", 0), inputs.get("nodeCount", 1), inputs.get("maxNodeCount")
    if most and most < least:
        yield "maxNodeCount", f"{most} is less than minNodeCount, {least}"
    elif most and count > most:
        yield "maxNodeCount", f"{most} is less than nodeCount, {count}"
    if least > count:
        yield "minNodeCount", f"{least} is more than nodeCount, {count}"


def group(inputs: Inputs) -> Failures:
    """What a node group beside Magnum's own two may be."""
    if inputs.get("name") in _MADE_BY_MAGNUM:
        yield "name", f"every cluster has a group {inputs['name']} of its own already; take another name"
    if inputs.get("role") == "master":
        yield "role", "Magnum makes no further groups of masters"
