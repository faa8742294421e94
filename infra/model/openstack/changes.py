"""Table of the changes that Magnum makes in place, and of those that need a replacement.

Sources, all of 2026-07: the provider's resources (terraform-provider-openstack, ``resource_openstack_
containerinfra_{cluster,nodegroup}_v1.go``, which pulumi_openstack 5.5 wraps) and Magnum
(``magnum/api/controllers/v1/{nodegroup,cluster_actions}.py``, ``magnum/api/validation.py``,
``magnum/db/sqlalchemy/api.py``). Where both restrict a field, the stricter one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Mode = Literal["in_place", "replace", "by_upgrade", "delete"]

_FORCE_NEW = "the provider's schema: ForceNew"
_BOTH = "the provider's schema: ForceNew; Magnum patches only node_count (cluster_update_allowed_properties)"
_GROUP = "the provider's schema: ForceNew; Magnum refuses it (NodeGroupPatchType.internal_attrs)"
_COUNT = "the provider's Update patches node_count, of default-worker"
_RESIZE = "the provider's Update: POST actions/resize with the node group"
_PATCH = (
    "the provider's Update patches the group; Magnum keeps min <= node_count <= max (_validate_node_count)"
)
_UPGRADE = (
    "the provider's Update: POST actions/upgrade; Magnum's Heat driver has none since 18.0.0 (2fd3059f)"
)
_OURS = "gpuform's own: not sent to Magnum"


@dataclass(frozen=True)
class Change:
    """One row: ``how`` a field changes, and the source of that.

    ``by_upgrade``: in place if the cluster's driver can upgrade a cluster, else a replacement.
    ``delete``: no Magnum resource is left, so only the guard against losses remains.
    """

    mode: Mode
    source: str


def _changes(mode: Mode, source: str, fields: str) -> dict[str, Change]:
    return dict.fromkeys(fields.split(), Change(mode, source))


UPGRADING_DRIVERS: tuple[str, ...] = ("capi",)
"""Drivers that can upgrade a cluster: magnum-capi-helm has ``upgrade_cluster``; for Heat see ``_UPGRADE``."""

NAME = Change("replace", "the provider's schema: ForceNew; our resources carry the name as well")
"""The environment's name, which is also the cluster's."""

CLUSTER: Mapping[str, Change] = {
    "kind": Change(
        "delete", "another kind is another cluster: refused until the name of this one is acknowledged"
    ),
    "cloud": Change(
        "in_place",
        "names credentials; preflight and the guard refuse those of another project or region than the "
        "cluster's",
    ),
    "region": Change(
        "replace", f"{_FORCE_NEW}, Computed: declaring the region that the credentials imply changes nothing"
    ),
    "driver": Change(
        "in_place", "not sent to Magnum; a label that follows from it counts as a change of labels"
    ),
    "template": Change("by_upgrade", _UPGRADE),
    "version": Change("in_place", "states the template's version; only another template changes it"),
    **_changes("replace", _BOTH, "keypair network.fixed_network network.fixed_subnet network.floating_ip"),
    "masters.nodes": Change("replace", _FORCE_NEW),
    "masters.flavor": Change("replace", _BOTH),
    "masters.lb": Change("replace", _BOTH),
    "workers.nodes": Change("in_place", _COUNT),
    "workers.flavor": Change("replace", _BOTH),
    "labels": Change("replace", _BOTH),
    "merge_labels": Change("replace", _FORCE_NEW),
    "docker_volume_gib": Change("replace", _BOTH),
    "timeout_minutes": Change(
        "in_place", "ForceNew, but only used at creation: gpuform lets the provider ignore a change"
    ),
    "flavors": Change("in_place", "describes a flavor; a pool names it"),
    "allow_replace": Change("in_place", _OURS),
}
"""Fields below ``cluster``; ``labels`` stands for each label, including those derived from the pools."""

POOL: Mapping[str, Change] = {
    "machine": Change("replace", _GROUP),
    "nodes": Change("in_place", _RESIZE),
    "elastic": Change("in_place", _PATCH),
    **_changes("replace", _GROUP, "openstack.role openstack.image openstack.labels"),
    "openstack.merge_labels": Change("replace", _FORCE_NEW),
    "openstack.docker_volume_gib": Change("replace", _GROUP),
    "openstack.allow_replace": Change("in_place", _OURS),
}
"""Fields of a pool that define its node group. The name has no row: another name is another group. Labels,
taints and sharing are set on the nodes through Kubernetes, always in place.
"""
