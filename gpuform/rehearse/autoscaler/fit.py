"""Whether a pod would fit a node, as the scheduler's filters say: requests, selectors, taints, pods.

Affinity to other pods, spread, ports and volumes are not looked at; no pod that a stack declares has any that
decides. Pods with resource claims fit nowhere: cluster-autoscaler starts no node of Magnum's for a claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.pod_requests import requested
from gpuform.rehearse.seen import quantity, resources

PODS = "pods"

Json = Mapping[str, Any]


@dataclass
class Room:
    """What is left of a node, and what a pod needs to be let onto it; ``name`` is the node's."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    free: Counter[str] = field(default_factory=Counter)

    def takes(self, pod: Json) -> bool:
        """Whether the pod would be placed here."""
        spec = pod["spec"]
        if spec.get("resourceClaims"):
            return False
        if not _selected(spec, self.labels, self.name) or not _tolerated(spec, self.taints):
            return False
        return all(self.free[key] >= amount for key, amount in requests(pod).items() if amount)

    def place(self, pod: Json) -> None:
        """Take what the pod asks for."""
        self.free.subtract(requests(pod))


def room(node: Json, pods: Iterable[Json], without_taints: frozenset[str] = frozenset()) -> Room:
    """What a node has left beside the pods that are on it."""
    name, spec = node["metadata"]["name"], node.get("spec", {})
    allocatable = node.get("status", {}).get("allocatable", {})
    free = Counter({key: quantity(text) for key, text in allocatable.items()})
    for pod in pods:
        free.subtract(requests(pod))
    taints = tuple(one for one in spec.get("taints", []) if one["key"] not in without_taints)
    return Room(name, node["metadata"].get("labels", {}), taints, free)


def requests(pod: Json) -> Counter[str]:
    """What the pod asks of a node, its place among the pods included."""
    found = requested(pod["spec"], lambda one: {key: quantity(text) for key, text in resources(one).items()})
    found[PODS] = 1
    return found


def _selected(spec: Json, labels: Mapping[str, str], name: str) -> bool:
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_matches(term, labels, name) for term in required["nodeSelectorTerms"])


def _matches(term: Json, labels: Mapping[str, str], name: str) -> bool:
    fields = {"metadata.name": name}
    return all(_holds(one, labels) for one in term.get("matchExpressions") or ()) and all(
        _holds(one, fields) for one in term.get("matchFields") or ()
    )


def _holds(one: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(one["key"]), one.get("values") or []
    operator = one["operator"]
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if value is None or not value.lstrip("-").isdigit():  # Gt and Lt want a number
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def _tolerated(spec: Json, taints: Iterable[Json]) -> bool:
    tolerations = spec.get("tolerations") or ()
    hard = (one for one in taints if one.get("effect") != "PreferNoSchedule")
    return all(any(_tolerates(one, taint) for one in tolerations) for taint in hard)


def _tolerates(one: Json, taint: Json) -> bool:
    if one.get("effect") and one["effect"] != taint.get("effect"):
        return False
    if not one.get("key"):
        return one.get("operator") == "Exists"
    if one["key"] != taint["key"]:
        return False
    return one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", "")
