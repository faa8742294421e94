"""Rules over node repair: at most one remediator for GPU nodes, and one that detects GPU faults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policies import contract
from policies.node_pools import has_gpus
from policies.openstack import has_label
from policies.rule import Resource, Rule, chart_of, get, text

_KARPENTER, _EKS, _HEALTH_LOOP = "Karpenter's node repair", "EKS's repair of node groups", "the health loop"
_MAGNUM = "Magnum's auto-healing"
_TRUE = (True, "true")


def _single_remediator(resource: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    """Reported once, for the first remediator."""
    enabled = [(other, remediator) for other in resources if (remediator := _remediator(other))]
    names = sorted({remediator for _, remediator in enabled})
    if len(names) > 1 and resource is enabled[0][0]:
        yield f"{' and '.join(names)} would act on the same nodes"


def _remediator(resource: Resource) -> str:
    """The remediator of GPU nodes that this resource enables, or empty."""
    if chart_of(resource) == "karpenter":
        # legacyNodeRepair, terminateFirstRepair and rebootForRepair only say how: they have no effect without
        # this gate (karpenter-provider-aws 1.15.2, charts/karpenter/values.yaml).
        enabled = get(resource.props, "values", "settings", "featureGates", "nodeRepair") in _TRUE
        return _KARPENTER if enabled else ""
    if resource.type == contract.NODE_GROUP and has_gpus(resource):
        return _EKS if get(resource.props, "nodeRepairConfig", "enabled") in _TRUE else ""
    if has_label(resource, "auto_healing_enabled"):
        return _MAGNUM
    if resource.type == contract.CONFIG_MAP:
        return _HEALTH_LOOP if _settings(resource).get("mode", "observe") != "observe" else ""
    return ""


def _settings(config_map: Resource) -> Mapping[str, Any]:
    """Settings of the health loop; empty for any other ConfigMap."""
    if get(config_map.props, "metadata", "namespace") != contract.HEALTH_NAMESPACE:
        return {}
    content = text(config_map.props, "data", "settings.json")
    return json.loads(content) if content else {}


def _detects_faults(resource: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    remediator = _remediator(resource)
    if remediator in (_KARPENTER, _EKS) and not any(
        get(other.props, "addonName") == contract.NODE_MONITORING
        for other in resources
        if other.type == contract.ADD_ON
    ):
        yield f"{remediator} detects no GPU fault without the add-on {contract.NODE_MONITORING}"


RULES = (
    Rule(
        "one-remediator",
        "At most one remediator acts on nodes with a broken GPU.",
        "high",
        "enable only one: settings.featureGates.nodeRepair, nodeRepairConfig, Magnum's label "
        "auto_healing_enabled, or a health.mode other than observe",
        (contract.RELEASE, contract.NODE_GROUP, contract.MAGNUM_CLUSTER, contract.CONFIG_MAP),
        _single_remediator,
        whole_stack=True,
    ),
    Rule(
        "repair-sees-gpus",
        "A remediator that uses node conditions gets conditions of the GPUs.",
        "medium",
        f"install the add-on {contract.NODE_MONITORING}",
        (contract.RELEASE, contract.NODE_GROUP),
        _detects_faults,
        whole_stack=True,
    ),
)
