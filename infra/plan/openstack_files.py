"""OpenStack resources of an environment, beside the platform, as documents for review."""

from __future__ import annotations

from typing import Any

from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import magnum, magnum_guards

Documents = list[dict[str, Any]]


def files(env: Environment) -> dict[str, Documents]:
    """Documents by file name; empty unless on OpenStack."""
    if env.cluster.kind != "openstack":
        return {}
    own = magnum.template(env)
    return {"magnum.yaml": [*([{"template": own}] if own else []), _cluster(env), *_groups(env)]}


def _cluster(env: Environment) -> dict[str, Any]:
    guarded = magnum_guards.of_cluster(env)
    found: dict[str, Any] = {
        "cluster": magnum.cluster(env),
        "replaced for": sorted({**guarded.fixed, **(guarded.template or {})}),
    }
    if magnum.template(env) is None:
        found["template"] = magnum.cluster_of(env).template
    return found


def _groups(env: Environment) -> Documents:
    return [_group(env, pool) for pool in env.pools]


def _group(env: Environment, pool: Pool) -> dict[str, Any]:
    flavor = pool.flavor
    assert flavor is not None  # checked when the environment was parsed
    each: dict[str, Any] = {"vcpu": flavor.vcpu, "memory_gib": flavor.memory}
    if flavor.gpu:
        each |= {"gpu": flavor.gpu, "gpus": flavor.gpus}
    return {
        "each node": each,
        "node group": magnum.node_group(env, pool),
        "nodes": magnum.selector(env, pool),
        "replaced for": sorted(magnum_guards.of_pool(env, pool).fixed),
    }
