"""Checks of the whole environment, in their order: its parts fit each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infra.model.aws.cluster import AwsCluster
from infra.model.base import registries
from infra.model.base.errors import InputError
from infra.model.base.fields import listing, node_limit
from infra.model.base.prices import Cost
from infra.model.base.quantities import version_numbers
from infra.model.checks import aws, hosts, node_keys, openstack, queues, rdma, workloads
from infra.model.checks.operator import check_monitoring, check_operator, operator_warnings
from infra.model.environment import Environment
from infra.model.gpu.machines import BUILT_IN
from infra.model.hosts.cluster import HostsCluster
from infra.model.openstack.cluster import OpenstackCluster
from infra.model.placement import driver_upgrade, fit, node_resources, quotas
from infra.model.platform import health, monitoring, scheduling, unused
from infra.model.platform.state import check_state
from infra.model.pool import mig_config, reset
from infra.model.pool.allocatable import shared_labels
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig


def check(env: Environment) -> None:
    """Raise InputError for the first part that does not fit the others."""
    _check_declared(env)
    check_state(env.cluster.kind, env.state)
    registries.check(env.registries)
    operator = env.gpu_operator
    check_operator(env.cluster.kind, operator, env.ownership, env.pools)
    if isinstance(env.cluster, OpenstackCluster):
        openstack.check_flavors(env.cluster, env.pools)
    _check_pools(env.cluster.kind, env.pools)
    shares = [shared_labels(pool) if operator.mode != "existing" else {} for pool in env.pools]
    node_keys.check(env.cluster.kind, env.pools, shares)
    minor = env.cluster.version if isinstance(env.cluster, AwsCluster | OpenstackCluster) else None
    scheduling.check_scheduling(env.cluster.kind, minor, env.scheduling)
    if env.admission == "fix" and minor and version_numbers(minor) < (1, 36):
        fact = f"Kubernetes {minor} does not serve MutatingAdmissionPolicy v1, which fix needs"
        raise InputError("admission", fact, "use version 1.36 or newer, or warn or deny")
    workloads.check_workloads(env.pools, env.workloads)
    workloads.check_notebooks(env)
    node_resources.check(env)
    scheduling.check_priorities(env.priorities, env.workloads)
    quotas.check_spare(env)
    quotas.check_namespaces(env)
    queues.check(env)
    workloads.check_inference(env)
    if env.monitoring:
        check_monitoring(operator, env.monitoring)
    monitoring.check(env.cluster.kind, env.monitoring, _namespaces(env))
    magnum = env.cluster if isinstance(env.cluster, OpenstackCluster) else None
    health.check(env.cluster.kind, env.health, env.monitoring, env.pools, magnum)
    if isinstance(env.cluster, AwsCluster):
        aws.check(env.name, env.cluster, env.pools, env.workloads)
    if isinstance(env.cluster, OpenstackCluster):
        openstack.check(env.name, env.cluster, env.pools)
        openstack.check_taints(env.cluster, operator, env.pools)
        openstack.check_workloads(env.pools, env.workloads)
    if isinstance(env.cluster, HostsCluster):
        cluster_values = {key: getattr(env, key) for key in hosts.CLUSTER_KEYS}
        hosts.check(env.cluster, operator, env.pools, cluster_values)
    _check_existing(env)
    fit.check(env)


def _check_existing(env: Environment) -> None:
    for index, name in enumerate(env.existing):
        if env.cluster.kind not in ("existing", "hosts"):
            fact = "the stack makes this cluster, and no controller is there before"
            raise InputError(f"existing[{index}]", fact, "leave it out: the stack installs it")
        if name not in env.uses:
            raise InputError(f"existing[{index}]", f"nothing of the stack needs {name}", "leave it out")


def _check_declared(env: Environment) -> None:
    """Refuse names that EC2 does not have, and GPUs with the same labels or the same MIG device filter."""
    cluster, gpus, machines = env.cluster, env.gpus, env.machines
    if machines and isinstance(cluster, OpenstackCluster):
        raise InputError("machines", "Nova's flavors are declared with the cluster", "use cluster.flavors")
    for name in machines if isinstance(cluster, AwsCluster) else ():
        if not re.fullmatch(r"[a-z][a-z0-9-]*\.[a-z0-9-]+", name):
            fact = f"{name!r} is not the name of an EC2 instance type"
            raise InputError(f"machines.{name}", fact, "write it as EC2 does, for example g6.xlarge")
    owner_of_product: dict[str, str] = {}
    owner_of_device: dict[str, str] = {}
    for name, gpu in gpus.items():
        owner = owner_of_product.setdefault(gpu.product, name)
        if owner != name:
            fact = f"gpus.{owner} has it too, and both would have the same node labels"
            raise InputError(f"gpus.{name}.product", fact, "declare the model once")
        owner = owner_of_device.setdefault(gpu.pci, name) if gpu.mig and gpu.pci else name
        if owner != name:
            fact = f"gpus.{owner} has it too, and mig-parted selects GPUs by this id"
            raise InputError(f"gpus.{name}.pci", fact, "declare the model once")


def _unused_prices(cost: Cost, system: Sequence[str], pools: Sequence[Pool]) -> Iterator[str]:
    """Prices of unknown names. One list of prices may serve several stacks."""
    machines = [machine.name for pool in pools for machine in (*pool.machines, pool.node_machine) if machine]
    known = [*(pool.name for pool in pools), *dict.fromkeys([*machines, *system])]
    for name in cost.prices:
        if name not in known and name not in BUILT_IN.machines:
            fact = "is neither a pool nor a machine of a pool, so the price has no effect"
            yield f"cost.prices.{name}: {fact}; {listing(known, name)}"


def _check_pools(cluster: str, pools: Sequence[Pool]) -> None:
    """Refuse duplicate pool names, and pools that lack what this kind of cluster needs."""
    index_of: dict[str, int] = {}
    for index, pool in enumerate(pools):
        path = f"pools[{index}]"
        if pool.name in index_of:
            fact = f"{pool.name!r} is also the name of pools[{index_of[pool.name]}]"
            raise InputError(f"{path}.name", fact, "give each pool a name of its own")
        index_of[pool.name] = index
        unused.check_pool(cluster, pool, path)
        _check_nodes(cluster, pool, path)
        _check_slices(pool, path)
    total = sum(pool.declared_nodes or 0 for pool in pools)
    if total > (limit := node_limit(cluster)):
        platform = "EKS" if cluster == "aws" else "Kubernetes"
        fact = f"they have {total} nodes, and a cluster of {platform} has at most {limit}"
        raise InputError("pools", fact, "declare fewer, or several clusters")
    mig_config.check_names(pools)
    rdma.check(pools)


def _check_slices(pool: Pool, path: str) -> None:
    """Refuse slices that the strategy does not offer; ``strategy`` is the operator's, ``path`` the pool's."""
    sharing = pool.sharing
    if not isinstance(sharing, Mig):
        return
    pool_strategy_name = pool.strategy
    setting = "sharing.strategy" if sharing.strategy else "gpu_operator.mig_strategy"
    if pool_strategy_name == "none":
        fact = f"{setting} none offers no slices"
        single = " or single" if len(pool.profiles) == 1 and pool.cuts[0].devices is None else ""
        raise InputError(f"{path}.sharing.kind", fact, f"use sharing.strategy: mixed{single}")
    if pool_strategy_name == "single" and len(pool.profiles) > 1:
        fact, key = f"{setting} single takes one profile per node", "layout" if sharing.layout else "layouts"
        raise InputError(f"{path}.sharing.{key}", fact, f"use {setting}: mixed, or one profile")
    if pool_strategy_name == "single" and pool.cuts[0].devices is not None:
        fact = f"under {setting} single all GPUs of a node must have the same MIG setting"
        key = "devices" if sharing.devices else "layouts"
        raise InputError(f"{path}.sharing.{key}", fact, f"use {setting}: mixed, or leave {key} out")


def _check_nodes(cluster: str, pool: Pool, path: str) -> None:
    if cluster == "embedded":
        if pool.selector is not None:
            fact = "an embedded cluster creates the pool's nodes"
            raise InputError(f"{path}.selector", fact, "give nodes: N, or use cluster kind existing")
        if pool.nodes is None:
            raise InputError(f"{path}.nodes", "missing", "give the number of nodes to simulate")
        if pool.node_machine is None and pool.gpu:
            fact = f"no known machine has {pool.gpu_count} of {' or '.join(pool.gpu.models)}"
            raise InputError(f"{path}.gpu", fact, "name a machine, or another count")
        return
    if cluster == "hosts":
        return  # see host_checks
    if cluster in ("aws", "openstack"):
        _check_created_pool(pool, path)
        return
    if pool.nodes is not None:
        fact = "the nodes of an existing cluster already exist"
        raise InputError(f"{path}.nodes", fact, "give selector: {label: value}")
    if pool.selector is None:
        raise InputError(f"{path}.selector", "missing", "give the labels by which the pool's nodes are found")


def _check_created_pool(pool: Pool, path: str) -> None:
    if pool.selector is not None:
        fact = "gpuform creates the pool's nodes"
        raise InputError(f"{path}.selector", fact, "give nodes: N or elastic, or use kind existing")
    if (pool.nodes is None) == (pool.elastic is None):
        fact = "both nodes and elastic are given" if pool.elastic else "neither nodes nor elastic is given"
        raise InputError(f"{path}.nodes", fact, "give one of the two")


def _system_machines(env: Environment) -> tuple[str, ...]:
    if isinstance(env.cluster, AwsCluster):
        return (env.cluster.system.machine,)
    if isinstance(env.cluster, OpenstackCluster):
        groups = (env.cluster.masters, env.cluster.workers)
        return tuple(group.flavor for group in groups if group.flavor)
    return ()


def _namespaces(env: Environment) -> dict[str, str]:
    """Every named namespace, with the path of the first field that names it."""
    paths: dict[str, str] = {}
    for index, workload in enumerate(env.workloads):
        paths.setdefault(workload.namespace, f"workloads[{index}].namespace")
    for index, namespace in enumerate(env.namespaces):
        paths.setdefault(namespace.name, f"namespaces[{index}].name")
    for index, team in enumerate(env.queues.teams if env.queues else ()):
        for name_index, name in enumerate(team.namespaces):
            paths.setdefault(name, f"queues.teams[{index}].namespaces[{name_index}]")
    return paths


def warnings(env: Environment) -> tuple[str, ...]:
    """Accepted settings that are not advisable: path, fact and remedy of each."""
    taint = env.gpu_operator.taint
    warnings = [*node_keys.warnings(taint.key if taint else "", env.pools)]
    warnings += [*node_resources.warnings(env), *queues.warnings(env), *monitoring.warnings(env.monitoring)]
    warnings += [*quotas.warnings(env), *workloads.warnings(env.pools, env.workloads)]
    warnings += [*operator_warnings(env.gpu_operator, env.pools), *driver_upgrade.warnings(env)]
    if env.cost:
        warnings += _unused_prices(env.cost, _system_machines(env), env.pools)
    if env.has_cluster:  # else Ansible changes the layouts, host by host
        warnings += reset.warnings(env.pools)
    if isinstance(env.cluster, AwsCluster):
        warnings += [*aws.warnings(env.cluster, env.pools), *aws.use_warnings(env)]
    if isinstance(env.cluster, OpenstackCluster):
        warnings += openstack.warnings(env.cluster, env.pools, env.monitoring)
    if isinstance(env.cluster, HostsCluster):
        warnings += hosts.warnings(env.cluster, env.pools)
    return tuple(warnings)
