"""Fields of a cluster and its node groups that force a replacement, and what that would lose.

The values go into a guard for each, which compares them with those of the last run (docs/howto/openstack.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.model.environment import Environment
from infra.model.openstack import changes
from infra.model.openstack.changes import Change, Mode
from infra.model.pool.pool import Pool
from infra.plan import magnum

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
    declared = magnum.cluster_of(env)
    body = _body(declared.model_dump(mode="json"), magnum.labels(env))
    return GuardInputs(
        name="cluster",
        subject="the cluster",
        prefix="",
        fixed={"name": env.name, **_fixed_values(changes.CLUSTER, "replace", body, "cluster.")},
        template=None
        if magnum.upgrades(env)
        else _fixed_values(changes.CLUSTER, "by_upgrade", body, "cluster."),
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
    workers = magnum.cluster_of(env).workers.nodes
    groups = [f"node group {pool.name} ({_nodes(pool)})" for pool in env.pools]
    return (
        "everything in its API server",
        f"node group {magnum.DEFAULT_WORKERS} ({_counted(workers, 'node')})",
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
