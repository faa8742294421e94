"""Simulated nodes, for the embedded control plane, of environments on AWS and OpenStack, and EKS' DaemonSets.

A pool of fixed size has its declared number of nodes. An elastic pool has as many as the environment's own
workloads need, and its spare nodes, within its bounds; on AWS on the smallest machine that fits them, while
real Karpenter also compares prices, and may choose larger machines. Nodes of Magnum's groups join with the
group's label and none of gpuform's: the program and the pool keeper set those, as on real nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from infra import versions
from infra.model import checks, choice, labels, node_room, offer, operator_checks
from infra.model.amounts import cpu_millis, memory_bytes
from infra.model.environment import Environment
from infra.model.machines import Machine
from infra.model.pool import Pool
from infra.model.workload import Workload
from infra.plan import eks, magnum, node_groups, sharing, startup
from infra.plan.manifest import Manifest, among, manifest, on_nodes
from infra.plan.nodes import bare, node, sizes

_MIB = 2**20
UNDECLARED = (256, 2048)
"""Cores and GiB of nodes of undeclared size; larger than any real node, so that no pod waits for them."""


def aws_nodes(env: Environment, waiting: bool = False, fixed_only: bool = False) -> tuple[Manifest, ...]:
    """The nodes of an AWS environment, pool after pool.

    GPU nodes are as the readiness gate leaves them; with ``waiting`` as they join, with the startup taint
    that only a gate removes. ``fixed_only`` leaves out Karpenter's nodes, for runs with a Karpenter.
    """
    pools = [node_groups.system_pool(env), *env.pools]
    if fixed_only:
        pools = [pool for pool in pools if not pool.by_karpenter]
    return tuple(made for pool in pools for made in _of(env, pool, waiting))


def _of(env: Environment, pool: Pool, waiting: bool) -> Iterator[Manifest]:
    machine, count = _bought(env, pool)
    if machine is None:
        return
    for index in range(count):
        made = node(env, pool, machine, f"{pool.name}-{index}")
        made["metadata"]["annotations"] |= sizes(node_room.left_by_kubelet(pool, machine))
        if machine.model:  # the image has a driver, so the operator installs none
            made["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = versions.GPU_DRIVER
        if machine.model and pool.by_karpenter:  # Karpenter labels nodes by instance type
            made["metadata"]["labels"][labels.INSTANCE_GPU_COUNT] = str(machine.gpus)
        if waiting:
            made["metadata"]["annotations"].update(startup.promise(env, pool))
            taints = [*made.get("spec", {}).get("taints", []), *startup.startup_taints(env, pool)]
            made["spec"] = {"taints": taints}
        yield made


def _bought(env: Environment, pool: Pool) -> tuple[Machine | None, int]:
    machines = sorted(pool.machines, key=lambda one: (one.vcpu, one.memory, one.name))
    if pool.elastic is None:
        return (machines[0] if machines else None), pool.nodes or 0
    work = [one for one in env.workloads if pool.name == (one.pool or taken(env, one))]
    for machine in machines:
        fits = [per_node(env, pool, machine, one) for one in work]
        if (work or pool.spare) and all(fits):
            count = sum(math.ceil(one.pods / fit) for one, fit in zip(work, fits, strict=True))
            count += pool.spare or 0
            most = offer.most_nodes(env.strategy(pool), pool, machine) * len(pool.capacity)
            return machine, min(count, most)
    return None, 0


def taken(env: Environment, work: Workload) -> str | None:
    """First pool that satisfies the workload's GPU need; None if there is none, or no need is declared."""
    strategy = env.gpu_operator.mig_strategy
    found = choice.units(strategy, env.pools, work.gpu, work.slice) if work.gpu else ()
    return found[0].pool.name if found else None


def per_node(env: Environment, pool: Pool, machine: Machine, work: Workload) -> int:
    """Pods of a workload that one empty node takes."""
    has = node_room.room(env, pool, machine)
    bounds = [has.pods, has.cpu // cpu_millis(work.cpu), has.memory * _MIB // memory_bytes(work.memory)]
    asked = checks.request(env.strategy(pool), [pool], work)
    if asked:
        bounds.append(sharing.offered(env, pool, machine.gpus)[asked] // work.amount)
    if work.efa:
        bounds.append(pool.adapters // work.efa)
    if work.hugepages:
        bounds.append(memory_bytes(pool.hugepages or "0Mi") // memory_bytes(work.hugepages))
    return min(bounds)


def magnum_nodes(env: Environment, proven: bool = False) -> tuple[Manifest, ...]:
    """The nodes of an OpenStack environment: Magnum's default workers, then pool after pool.

    ``proven`` nodes carry the readiness gate's proof, for runs without a gate.
    """
    made = [*_workers(env)]
    for pool in env.pools:
        made += [
            magnum_node(env, pool, f"{pool.name}-{index}", proven) for index in range(group_size(env, pool))
        ]
    return tuple(made)


def magnum_node(env: Environment, pool: Pool, name: str, proven: bool = False) -> Manifest:
    """A node of the pool's group as it joins the cluster."""
    machine = pool.flavor
    assert machine is not None  # checked when the environment was parsed
    made = bare(env, pool, machine, name, magnum.selector(env, pool))
    if pool.gpus and env.ownership.driver != "operator":
        driver = operator_checks.driver_version(env.gpu_operator, [pool])
        made["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = driver
    if pool.gpus and proven:
        made["metadata"]["annotations"][labels.GPU_READY] = "played"
    return made


def group_size(env: Environment, pool: Pool) -> int:
    """Number of nodes once the group has scaled for the environment's workloads, within its bounds."""
    machine = pool.flavor
    if pool.elastic is None or machine is None:
        return pool.least
    work = [one for one in env.workloads if pool.name == (one.pool or taken(env, one))]
    fits = [max(1, per_node(env, pool, machine, one)) for one in work]
    needed = sum(math.ceil(one.pods / fit) for one, fit in zip(work, fits, strict=True)) + (pool.spare or 0)
    return min(max(needed, pool.least), pool.most)


def unknown_workers(env: Environment) -> str:
    """Message that the default workers' size is not declared; empty if their flavor is known."""
    declared = magnum.cluster_of(env)
    if declared.machine(declared.workers.flavor):
        return ""
    flavor = declared.workers.flavor or "the template's flavor"
    return f"cores and memory of {magnum.DEFAULT_WORKERS} ({flavor}) are not declared"


def _workers(env: Environment) -> Iterator[Manifest]:
    declared = magnum.cluster_of(env)
    cores, gib = UNDECLARED
    flavor = declared.workers.flavor or magnum.DEFAULT_WORKERS
    machine = declared.machine(declared.workers.flavor) or Machine(flavor, "openstack", cores, gib)
    label = {magnum.GROUP_LABELS[declared.driver]: magnum.DEFAULT_WORKERS}
    for index in range(declared.workers.nodes):
        yield bare(env, None, machine, f"{magnum.DEFAULT_WORKERS}-{index}", label)


def daemon_sets(env: Environment) -> tuple[Manifest, ...]:
    """The DaemonSets of a rehearsed EKS cluster that no simulated chart brings: the add-ons'.

    With the requests and tolerations of the real ones: Karpenter takes what DaemonSets request off each node
    that it may buy.
    """
    found = [_daemon_set(one, [{"operator": "Exists"}]) for one in node_room.EKS]
    agent = eks.add_on_settings(env).get(eks.MONITORING_AGENT)
    if agent:
        nvidia = [one.name for one in env.catalogue.machines.values() if one.seller == "ec2" and one.gpus]
        tolerations = agent["dcgmAgent"]["tolerations"]
        found.append(_daemon_set(node_room.DCGM_SERVER, tolerations, nvidia))
    return tuple(found)


def _daemon_set(
    daemon: node_room.Daemon, tolerations: list[Mapping[str, str]], types: Sequence[str] = ()
) -> Manifest:
    """A DaemonSet on all nodes, or on those of the instance ``types``."""
    name, selector = daemon.name, {labels.APP_NAME: daemon.name}
    asked = {"cpu": f"{daemon.cpu}m", "memory": f"{daemon.memory}Mi"}
    container = {"name": name, "image": f"simulated.gpuform.io/{name}:0", "resources": {"requests": asked}}
    pod: Manifest = {
        "containers": [container],
        "priorityClassName": "system-node-critical",
        "tolerations": tolerations,
    }
    if types:
        pod["affinity"] = on_nodes(among(labels.INSTANCE_TYPE, types))
    template = {"metadata": {"labels": selector}, "spec": pod}
    metadata = {"name": name, "namespace": "kube-system", "labels": selector}
    return manifest(
        "DaemonSet", metadata, "apps/v1", spec={"selector": {"matchLabels": selector}, "template": template}
    )
