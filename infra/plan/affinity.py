"""Affinity of a workload to nodes with the GPU that it needs, and to pods of another workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.model import labels
from infra.model.choice import Unit

Manifest = dict[str, Any]


def required(units: Sequence[Unit]) -> Manifest:
    """All nodes of pools that satisfy the need as a whole; of other pools the nodes with a matching product.

    Not by ``nvidia.com/gpu.memory``: the product stands for the whole GPU model, NVLink included.
    """
    whole = sorted({unit.pool.name for unit in units if unit.every_node})
    terms = [[_in(labels.POOL, whole)]] if whole else []
    for unit in units:
        if not unit.every_node:
            products = sorted(unit.products)
            terms.append([_in(labels.POOL, [unit.pool.name]), _in(labels.GPU_PRODUCT, products)])
    return _any_of(terms)


def of_pools(names: Sequence[str]) -> Manifest:
    """All nodes of these pools."""
    return _any_of([[_in(labels.POOL, sorted(names))]])


def near(name: str) -> Manifest:
    """Rather on a node with a pod of that workload than in its zone, rather there than elsewhere.

    Not required: the node of the data may have no GPU, or none that is free.
    """
    selected = {"labelSelector": {"matchLabels": {labels.APP_NAME: name}}}
    places = ((100, labels.HOSTNAME), (50, labels.ZONE))
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "podAffinityTerm": {**selected, "topologyKey": key}} for weight, key in places
        ]
    }


def _any_of(terms: Sequence[Sequence[Manifest]]) -> Manifest:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": required}


def _in(key: str, values: list[str]) -> Manifest:
    return {"key": key, "operator": "In", "values": values}
