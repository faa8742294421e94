"""Rules over sharing: exclusive modes, tenants of one GPU, and MIG layouts that must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from policies import contract
from policies.rule import Resource, Rule, mapping, text

_KIND = re.compile(r"^\s+(timeSlicing|mps):", re.MULTILINE)
_LAYOUT = re.compile(r"^  ([A-Za-z0-9._-]+):\s*$", re.MULTILINE)  # a key of mig-configs


def _exclusive(config: Resource, _: Sequence[Resource]) -> Iterator[str]:
    data = mapping(config.props, "data")
    for key in sorted(data):
        if set(_KIND.findall(text(data, key))) == {"timeSlicing", "mps"}:
            yield f"{key} has timeSlicing and mps, which exclude each other on a node"


def _labels(resource: Resource) -> Any:
    if resource.type == contract.NODE_POOL:
        return mapping(resource.props, "spec", "template", "metadata", "labels")
    if resource.type == contract.NODE:
        return mapping(resource.props, "metadata", "labels")
    return mapping(resource.props, "labels")


def _trusted(pool: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    labels = _labels(pool)
    if labels.get(contract.TRUST) != "multi":
        return
    name = text(labels, contract.DEVICE_PLUGIN_CONFIG)
    for config in resources:
        if config.type == contract.CONFIG_MAP and _KIND.search(text(config.props, "data", name)):
            yield f"serves several tenants and shares its GPUs by {name}: they see each other's faults"


def _layout_known(resource: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    layout = _layout(resource)
    if layout is None or layout in contract.MIG_STANDARD:
        return
    known: set[str] = set()
    for config in resources:
        if config.type == contract.CONFIG_MAP:
            config_file = text(config.props, "data", "config.yaml")
            if "mig-configs:" in config_file:
                known |= set(_LAYOUT.findall(config_file))
    if layout not in known:
        declared = ", ".join(sorted(known)) or "no layout is declared"
        yield f"selects MIG layout {layout}, and no ConfigMap has it: {declared}"


def _layout(resource: Resource) -> str | None:
    if resource.type == contract.MIG_LAYOUT:
        return text(resource.props, "config")
    config = _labels(resource).get(contract.MIG_CONFIG)
    return None if config is None else str(config)


_POOLS = (
    *(contract.NODE_POOL, contract.NODE, contract.NODE_GROUP),
    *(contract.POOL_NODES, contract.SIMULATED_NODES),
)
RULES = (
    Rule(
        "sharing-exclusive",
        "A device-plugin configuration shares GPUs in one way.",
        "high",
        "declare one kind of sharing for each pool",
        (contract.CONFIG_MAP,),
        _exclusive,
    ),
    Rule(
        "sharing-trusted",
        "GPUs that several tenants use are shared by MIG or not at all.",
        "critical",
        "use sharing kind mig, or a pool for each tenant",
        _POOLS,
        _trusted,
        whole_stack=True,
        reads_platform=True,
    ),
    Rule(
        "mig-layout-known",
        "The MIG layout that a node selects is in the configuration.",
        "high",
        "declare the layout in the pool, so that label and ConfigMap come from one place",
        (*_POOLS, contract.MIG_LAYOUT),
        _layout_known,
        whole_stack=True,
        reads_platform=True,
    ),
)
