"""Arguments of Magnum's cluster and node groups, and how their nodes are selected.

Undeclared arguments are omitted, so that the template decides, as with the same command typed by hand.
Sources: Magnum's API reference, and its ``magnum/api/controllers/v1``.

The values go into a guard for each, which compares them with those of the last run (docs/howto/openstack.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.model.environment import Environment
from infra.model.openstack import changes
from infra.model.openstack.changes import UPGRADING_DRIVERS, Change, Mode
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


Fixed = dict[str, Any]
_REGION = "cluster.region"


@dataclass(frozen=True)
class GuardInputs:
    """One guard's inputs.

    ``fixed`` has the values that only a replacement changes, by path below ``at``; ``template`` those that
    Magnum could change by an upgrade if this cloud's driver cannot do it, else None; ``allow`` is the path of
    the field that allows the replacement; ``lost`` says in words what it would delete; ``cloud``, of the
    cluster only, names the credentials that give the region if none is declared (empty: the OS_ variables).
    """

    name: str
    subject: str
    prefix: str
    fixed: Fixed
    template: Fixed | None
    allow: str
    allowed: bool
    lost: tuple[str, ...]
    cloud: str | None = None

    @property
    def trigger(self) -> Fixed:
        """Values that replace the resource when they change, without the region.

        The credentials' region may be declared later, and the provider itself compares it with the cluster's.
        """
        return {path: value for path, value in self.fixed.items() if path != _REGION}


def guards(env: Environment) -> tuple[GuardInputs, ...]:
    """The cluster's guard, then one for each pool."""
    return (cluster_guard(env), *(pool_guard(env, pool) for pool in env.pools))


def cluster_guard(env: Environment) -> GuardInputs:
    """The guard of the cluster; not named after the environment, or a new name would be unguarded."""
    declared = cluster_of(env)
    body = _body(declared.model_dump(mode="json"), labels(env))
    return GuardInputs(
        name="cluster",
        subject="the cluster",
        prefix="",
        fixed={"name": env.name, **_fixed_values(changes.CLUSTER, "replace", body, "cluster.")},
        template=None if upgrades(env) else _fixed_values(changes.CLUSTER, "by_upgrade", body, "cluster."),
        allow="cluster.allow_replace",
        allowed=declared.allow_replace,
        lost=_lost_with_cluster(env),
        cloud=declared.cloud or "",
    )


def pool_guard(env: Environment, pool: Pool) -> GuardInputs:
    """The guard of a pool's node group."""
    settings = pool.openstack_settings
    body = {"machine": pool.machine, "openstack": _body(settings.model_dump(mode="json"), settings.labels)}
    prefix = f"pools[{env.pools.index(pool)}]."
    return GuardInputs(
        name=f"pool-{pool.name}",  # a pool may be called cluster
        subject=f"node group {pool.name}",
        prefix=prefix,
        fixed=_fixed_values(changes.POOL, "replace", body),
        template=None,
        allow=f"{prefix}openstack.allow_replace",
        allowed=settings.allow_replace,
        lost=(_nodes(pool), *_workloads(env, pool.name)),
    )


def _body(declared: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """The declared fields with these labels; without labels ``merge_labels`` has no meaning."""
    return {**declared, "labels": labels, "merge_labels": declared["merge_labels"] if labels else None}


def _fixed_values(table: Mapping[str, Change], mode: Mode, body: Mapping[str, Any], base: str = "") -> Fixed:
    """Values of the rows with this ``mode``, by path, each label on its own; unset ones are omitted."""
    values: Fixed = {}
    for path, change in table.items():
        value = _value_at(body, path) if change.mode == mode else None
        if path.rpartition(".")[2] == "labels":
            values |= {f"{base}{path}.{key}": label_value for key, label_value in (value or {}).items()}
        elif value is not None:
            values[f"{base}{path}"] = value
    return dict(sorted(values.items()))


def _value_at(body: Any, path: str) -> Any:
    for key in path.split("."):
        body = body.get(key) if isinstance(body, Mapping) else None
    return body


def _lost_with_cluster(env: Environment) -> tuple[str, ...]:
    workers = cluster_of(env).workers.nodes
    groups = [f"node group {pool.name} ({_nodes(pool)})" for pool in env.pools]
    return (
        "everything in its API server",
        f"node group {DEFAULT_WORKERS} ({_counted(workers, 'node')})",
        *groups,
        *_workloads(env),
    )


def _nodes(pool: Pool) -> str:
    count = (
        _counted(pool.min_nodes, "node")
        if pool.elastic is None
        else f"{pool.min_nodes} to {pool.max_nodes} nodes"
    )
    return f"{count} of {pool.machine}"


def _workloads(env: Environment, pool: str | None = None) -> tuple[str, ...]:
    """All workloads, or those that name the pool; others may find room in another pool."""
    return tuple(
        f"{workload.kind} {workload.namespace}/{workload.name}"
        for workload in env.workloads
        if pool in (None, workload.pool)
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
