"""The inventory that the checks of a stack compare its hosts with.

For own hosts it is Ansible's, with the slices that the operator's MIG manager is to create. For any other
cluster it has the live nodes of each pool, and what the operator installs on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from infra import facts, versions
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.gpu import drivers
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.plan import gpu_operator, sharing
from infra.plan.inventory import inventory as ansible_inventory
from infra.plan.inventory import key_paths, rdma_variables

Variables = dict[str, Any]


def hosts_inventory(env: Environment) -> dict[str, Any]:
    """The inventory of own hosts, without the repositories' keys, which no check reads."""
    result = ansible_inventory(env, {path: "" for _, path in key_paths(env)})
    for pool in env.pools:
        for host in pool.hosts or () if pool.gpus and env.kubeconfig else ():
            result["_meta"]["hostvars"][host.name].update(_mig_variables(pool))
    return result


def nodes_inventory(
    env: Environment, nodes: Iterable[Mapping[str, Any]], kubeconfig: Path, context: str | None
) -> dict[str, Any]:
    pools = {pool.name: pool for pool in env.pools}
    hosts: dict[str, Variables] = {}
    for node in nodes:
        node_labels = node["metadata"].get("labels", {})
        pool = pools.get(node_labels.get(labels.POOL, ""))
        if pool:
            kubelet = node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")
            distribution = facts.distribution_of(kubelet)
            gpus = allocatable.node_gpus(pool, node_labels) or pool.gpu_counts[-1]
            hosts[node["metadata"]["name"]] = {
                "gpuform_environment": env.name,
                "gpuform_pool": pool.name,
                "gpuform_kubeconfig": str(kubeconfig),
                "gpuform_context": context or "",
                "gpuform_labels": sharing.pool_labels(env, pool),
                "gpuform_taints": sharing.pool_taints(env, pool),
                **rdma_variables(pool),
                **({"gpuform_distribution": distribution.name} if distribution else {}),
                **(_gpu_variables(env, pool, gpus) if pool.gpus else {}),
            }
    return {"_meta": {"hostvars": hosts}}


def _gpu_variables(env: Environment, pool: Pool, gpus: int) -> Variables:
    driver, modules = gpu_operator.driver_version(env), env.gpu_operator.kernel_modules
    gpu = pool.gpus[0]
    return {
        "validate_inventory_gpu": {"model": gpu.name, "product": gpu.device, "count": gpus},
        "nvidia_driver_source": "operator",
        "nvidia_driver_version": driver,
        "nvidia_driver_modules": drivers.recommended_modules(gpu, driver) if modules == "auto" else modules,
        "nvidia_driver_fabricmanager": drivers.needs_fabric_manager(gpu, gpus),
        "nvidia_container_toolkit_version": env.gpu_operator.toolkit_version or versions.CONTAINER_TOOLKIT,
        "nvidia_container_toolkit_runtime": "containerd",
        "nvidia_container_toolkit_mode": "cdi" if env.gpu_operator.cdi else "runtime",
        **_mig_variables(pool),
    }


def _mig_variables(pool: Pool) -> Variables:
    """The MIG slices that the operator creates, by number of the GPU, or ``all``."""
    slices = {
        str(number): dict(cut.layout)
        for cut in pool.cuts
        for number in (("all",) if cut.devices is None else cut.devices)
    }
    return {"gpuform_mig": slices or {"all": {}}}
