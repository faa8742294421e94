"""The pool keeper: one small pod that sets the pool's labels, taints and layout on nodes that join later.

Nodes of Magnum's node groups join without our labels and taints: the provider has no field for them
[pulumi_openstack 5.5, containerinfra.NodeGroup; Magnum's API has had one since 1.14]. So do nodes of existing
clusters. Nodes of EKS groups join with both, but without the label of their MIG layout: EKS would change a
label of the group on all its nodes at once, and `MigLayout` drains them first. `gpuform up` sets what is
missing on existing nodes; this program sets the same on nodes that an autoscaler, a resize or a replacement
adds between two runs. The program is ``infra/incluster/pool_keeper.py``, in a ConfigMap named by its content,
so that a change of the pools makes a new pod. It may only list, watch and patch nodes and create events.
"""

from __future__ import annotations

from typing import Any

from infra.model.base import labels
from infra.model.base.fields import short_digest
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.plan import magnum, sharing, startup
from infra.plan.manifest import Manifest, rbac_rule
from infra.plan.program import Program

NAME = "pool-keeper"
FILES = ("pool_keeper.py", "cluster.py")
EVENTS = "default"
"""Namespace of events about nodes, which are not namespaced."""
NEW_NODE_S = 3600
"""Age in seconds up to which a node of an existing cluster counts as new. An older one that gets the label of
a pool's selector may run pods: `gpuform up` compares them with what the node will offer, and drains it."""


def kept_pools(env: Environment) -> tuple[Pool, ...]:
    """Pools with nodes that may join at any time without something that `gpuform up` would set."""
    if env.cluster.kind in ("openstack", "existing"):
        return env.pools
    if env.cluster.kind == "aws" and env.has_mig_manager:
        return tuple(pool for pool in env.pools if pool.cuts and pool.has_live_layout)
    return ()


def field_manager(env: Environment, pool: Pool) -> str | None:
    """Field manager of the labels that this program sets on the pool's nodes; None if it sets none.

    This program and `gpuform up` share it: what one has set, the other may change and remove.
    """
    sets_labels = env.cluster.kind in ("openstack", "existing")
    return f"gpuform-pool-{short_digest(f'{env.name}/{pool.name}')}" if sets_labels else None


def awaited_nodes(env: Environment, pool: Pool) -> dict[str, Any] | None:
    """Number of a Magnum pool's nodes that `gpuform up` waits for, and where to look if they do not join."""
    if env.cluster.kind != "openstack":
        return None
    hint = (
        f"`openstack coe nodegroup show {env.name} {pool.name}`, its servers (`openstack server list`) and "
        "the console of one that has not joined (`openstack console log show SERVER`)"
    )
    return {"nodes": pool.min_nodes, "look": hint}


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """The keeper's objects, in creation order; empty if no pool is kept."""
    if not kept_pools(env):
        return ()
    program = Program(env, NAME, sharing.namespace(env))
    files, pod = program.script_pod(FILES, ("pools.json", pools(env)), "/keeper")
    # The previous pod must have ended: it would set the old labels and taints.
    deployment = program.deployment(1, pod, strategy={"type": "Recreate"})
    # Nodes are cluster-scoped, and events about them are in the namespace default.
    on_nodes, on_events = rbac_rule("", "nodes", "list", "watch", "patch"), rbac_rule("", "events", "create")
    name = f"gpuform-{NAME}"
    roles = (
        *program.role_and_binding(name, [on_nodes]),
        *program.role_and_binding(name, [on_events], EVENTS),
    )
    return (program.account(), *roles, files, deployment)


def pools(env: Environment) -> dict[str, Any]:
    """What the program sets on the nodes of each kept pool, and how it finds them."""
    return {pool.name: _pool(env, pool) for pool in kept_pools(env)}


def _pool(env: Environment, pool: Pool) -> dict[str, Any]:
    settings: dict[str, Any]
    if env.cluster.kind == "aws":  # the node group sets labels and taints, the startup taint included
        selector = {labels.POOL: pool.name, labels.ENVIRONMENT: env.name}
        startup_settings = {"taints": [], "proof": labels.GPU_READY}
        settings = {"selector": selector, "labels": {}, "taints": [], "startup": startup_settings}
    else:
        is_magnum = env.cluster.kind == "openstack"
        settings = {
            "selector": magnum.selector(env, pool) if is_magnum else dict(pool.selector or {}),
            "manager": field_manager(env, pool),
            "labels": sharing.pool_labels(env, pool),
            "taints": sharing.pool_taints(env, pool),
        }
        if not is_magnum:
            settings["joined_within"] = NEW_NODE_S
        if change := startup.startup_change(env, pool):
            settings["startup"] = {"taints": change["taints"], "proof": change["proof"]}
    if config := sharing.live_layout(env, pool):
        content = sharing.layout_content(pool)
        settings["layout"] = {"config": config} | ({"content": content} if content else {})
    return settings
