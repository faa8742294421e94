"""The pool keeper: one small pod that gives nodes that join later what their pool's nodes have.

Where others make the nodes, they come without our labels and taints: Magnum's provider has no field for them
[pulumi_openstack 5.5, containerinfra.NodeGroup; Magnum's API has had one since 1.14]. `gpuform up` puts them
on the nodes that are there; this program puts the same on those that an autoscaler, a resize or a replacement
brings between two runs. Its program is ``infra/incluster/pool_keeper.py``, carried by a ConfigMap that is
named by its content, so that another pool is another pod. It may list, watch and patch nodes, write events
about them, and nothing more.
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
"""The namespace of events about nodes, which have none."""


def kept(env: Environment) -> tuple[Pool, ...]:
    """Pools whose nodes join without our labels at any time: those of Magnum's node groups."""
    return env.pools if env.cluster.kind == "openstack" else ()


def manager(env: Environment, pool: Pool) -> str | None:
    """The field manager of the labels of a kept pool's nodes, which is whose they are; None for others.

    One for both who set them, this program and `gpuform up`: what the one has set, the other may change and
    take away.
    """
    return f"gpuform-pool-{digest(f'{env.name}/{pool.name}')}" if pool in kept(env) else None


def joining(env: Environment, pool: Pool) -> dict[str, Any] | None:
    """How many of a kept pool's nodes `gpuform up` waits for, and where people look if they do not come."""
    if pool not in kept(env):
        return None
    look = (
        f"`openstack coe nodegroup show {env.name} {pool.name}`, its servers (`openstack server list`) and "
        "the console of one that has not joined (`openstack console log show SERVER`)"
    )
    return {"nodes": pool.least, "look": look}


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """Everything that the keeper is, in the order in which it works; nothing where no pool is kept."""
    if not kept(env):
        return ()
    keeper = Program(env, NAME, sharing.NAMESPACE)
    script = Script(keeper, FILES, POOLS, FOLDER)
    files = script.config_map(pools(env))
    # The one before must have ended: it would give nodes what their pools were.
    deployment = keeper.deployment(1, script.pod(files, memory="128Mi"), strategy={"type": "Recreate"})
    return (keeper.account(), *_access(keeper), files, deployment)


def pools(env: Environment) -> dict[str, Any]:
    """What the nodes of each kept pool are known by, and what they get."""
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
    """Nodes are nobody's namespace, and events about them are in the default one."""
    on_nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch", "patch"]}
    on_events = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}
    name = f"gpuform-{NAME}"
    return (*keeper.granted(name, [on_nodes]), *keeper.granted(name, [on_events], EVENTS))
