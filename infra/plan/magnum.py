"""Arguments of Magnum's cluster and node groups, and how their nodes are selected.

Undeclared arguments are omitted, so that the template decides, as with the same command typed by hand.
Sources: Magnum's API reference, and its ``magnum/api/controllers/v1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.model.environment import Environment
from infra.model.openstack.changes import UPGRADING_DRIVERS
from infra.model.openstack.cluster import (
    AUTOSCALER_LABEL,
    GPU_LABEL,
    SCALING_DRIVERS,
    OpenstackCluster,
    is_enabled,
)
from infra.model.pool.pool import Pool

Arguments = dict[str, Any]

ON = "true"
DEFAULT_WORKERS = "default-worker"
GROUP_LABELS: Mapping[str, str] = {
    "heat": "magnum.openstack.org/nodegroup",
    "capi": "capi.stackhpc.com/node-group",
}
"""Node label with the node group's name, by Magnum's driver: the Heat driver set it on kubelets in
``configure-kubernetes-minion.sh`` (until Magnum 2026.1); magnum-capi-helm's chart sets it on its machines."""
MARGIN_MINUTES = 5
"""Added to Magnum's own timeout: its error says more than "timed out"."""


def cluster_of(env: Environment) -> OpenstackCluster:
    """The Magnum cluster; only called on OpenStack."""
    assert isinstance(env.cluster, OpenstackCluster)
    return env.cluster


def labels(env: Environment) -> dict[str, str]:
    """The cluster's labels, sorted: derived from the pools, overridden by declared ones."""
    derived: dict[str, str] = {}
    if any(pool.gpus for pool in env.pools):
        derived[GPU_LABEL] = ON
    if cluster_of(env).driver in SCALING_DRIVERS and any(pool.elastic for pool in env.pools):
        derived[AUTOSCALER_LABEL] = ON
    return dict(sorted({**derived, **cluster_of(env).labels}.items()))


def cluster(env: Environment) -> Arguments:
    """Arguments of the cluster, without its template's id."""
    declared = cluster_of(env)
    return _without_none(
        name=env.name,
        create_timeout=declared.timeout_minutes,
        docker_volume_size=declared.docker_volume_gib,
        fixed_network=declared.network.fixed_network,
        fixed_subnet=declared.network.fixed_subnet,
        flavor=declared.workers.flavor,
        floating_ip_enabled=declared.network.floating_ip,
        keypair=declared.keypair,
        master_count=declared.masters.nodes,
        master_flavor=declared.masters.flavor,
        master_lb_enabled=declared.masters.lb,
        node_count=declared.workers.nodes,
        **_labels(labels(env), declared.merge_labels),
    )


def node_group(env: Environment, pool: Pool) -> Arguments:
    """Arguments of a pool's node group, without its cluster's id.

    A group of fixed size has no bounds: its size is the declared number, and nothing scales it. A Cluster
    API driver with cluster-autoscaler needs the number as its minimum: it would scale the group from
    Magnum's default minimum, 0, which it refuses (magnum-capi-helm, ``_get_autoscale_values``).
    """
    declared = pool.openstack_settings
    is_autoscaled = cluster_of(env).driver == "capi" and is_enabled(labels(env))
    return _without_none(
        name=pool.name,
        docker_volume_size=declared.docker_volume_gib,
        flavor_id=pool.machine,
        image_id=declared.image,
        max_node_count=pool.max_nodes if pool.elastic else None,
        # Set even if 0: if omitted, the provider would keep the value from when the pool was elastic.
        min_node_count=pool.min_nodes if pool.elastic or is_autoscaled else 0,
        node_count=pool.min_nodes,
        role=declared.role,
        **_labels(dict(sorted(declared.labels.items())), declared.merge_labels),
    )


def upgrades(env: Environment) -> bool:
    """Whether the cloud's Magnum driver can move the cluster to another template in place."""
    return cluster_of(env).driver in UPGRADING_DRIVERS


def selector(env: Environment, pool: Pool) -> dict[str, str]:
    """Node label of the pool's group; it is on every node of the group, whatever created it."""
    return {GROUP_LABELS[cluster_of(env).driver]: pool.name}


def wait_minutes(env: Environment) -> int:
    """Minutes that the engine waits for Magnum to create, update or delete something."""
    return cluster_of(env).timeout_minutes + MARGIN_MINUTES


def _labels(labels_set: Mapping[str, str], merge: bool) -> Arguments:
    return {"labels": dict(labels_set), "merge_labels": merge or None} if labels_set else {}


def _without_none(**arguments: Any) -> Arguments:
    return {key: value for key, value in sorted(arguments.items()) if value is not None}
