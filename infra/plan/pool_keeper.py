"""The pool keeper: one small pod that sets the pool's labels and taints on nodes that join later.

Nodes of Magnum's node groups join without our labels and taints: the provider has no field for them
[pulumi_openstack 5.5, containerinfra.NodeGroup; Magnum's API has had one since 1.14]. `gpuform up` sets them
on existing nodes; this program sets the same on nodes that an autoscaler, a resize or a replacement adds
between two runs. The program is ``infra/incluster/pool_keeper.py``, in a ConfigMap named by its content, so
that a change of the pools makes a new pod. It may only list, watch and patch nodes and create events.
"""

from __future__ import annotations

from typing import Any

from infra.model.digest import digest
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import magnum, mig_parted, sharing, startup
from infra.plan.program import Program
from infra.plan.script import Script

Manifest = dict[str, Any]

NAME = "pool-keeper"
FILES = ("pool_keeper.py", "cluster.py", "events.py")
POOLS = "pools.json"
FOLDER = "/keeper"
EVENTS = "default"
"""Namespace of events about nodes, which are not namespaced."""


def kept(env: Environment) -> tuple[Pool, ...]:
    """Pools with nodes that may join at any time without our labels: those of Magnum's node groups."""
    return env.pools if env.cluster.kind == "openstack" else ()


def manager(env: Environment, pool: Pool) -> str | None:
    """Field manager that owns the labels of a kept pool's nodes; None for other pools.

    This program and `gpuform up` share it: what one has set, the other may change and remove.
    """
    return f"gpuform-pool-{digest(f'{env.name}/{pool.name}')}" if pool in kept(env) else None


def joining(env: Environment, pool: Pool) -> dict[str, Any] | None:
    """Number of a kept pool's nodes that `gpuform up` waits for, and where to look if they do not join."""
    if pool not in kept(env):
        return None
    look = (
        f"`openstack coe nodegroup show {env.name} {pool.name}`, its servers (`openstack server list`) and "
        "the console of one that has not joined (`openstack console log show SERVER`)"
    )
    return {"nodes": pool.least, "look": look}


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """The keeper's objects, in creation order; empty if no pool is kept."""
    if not kept(env):
        return ()
    keeper = Program(env, NAME, sharing.namespace(env))
    script = Script(keeper, FILES, POOLS, FOLDER)
    files = script.config_map(pools(env))
    # The previous pod must have ended: it would set the old labels and taints.
    deployment = keeper.deployment(1, script.pod(files, memory="128Mi"), strategy={"type": "Recreate"})
    return (keeper.account(), *_access(keeper), files, deployment)


def pools(env: Environment) -> dict[str, Any]:
    """Selector, labels and taints of the nodes of each kept pool."""
    return {pool.name: _pool(env, pool) for pool in kept(env)}


def _pool(env: Environment, pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "selector": magnum.selector(env, pool),
        "manager": manager(env, pool),
        "labels": sharing.pool_labels(env, pool),
        "taints": sharing.pool_taints(env, pool),
    }
    waits = startup.until_proven(env, pool)
    if waits:
        found["startup"] = {"taints": waits["taints"], "proof": waits["proof"]}
    config = sharing.mig_config_name(pool)
    if config and pool.laid_out_live(env.cluster.kind) and env.has_mig_manager:
        content = mig_parted.content(pool)
        found["layout"] = {"config": config} | ({"content": content} if content else {})
    return found


def _access(keeper: Program) -> tuple[Manifest, ...]:
    """Nodes are cluster-scoped, and events about them are in the namespace default."""
    on_nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch", "patch"]}
    on_events = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}
    name = f"gpuform-{NAME}"
    return (*keeper.granted(name, [on_nodes]), *keeper.granted(name, [on_events], EVENTS))
