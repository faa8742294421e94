"""Ansible's inventory: groups and host variables that follow from the pools.

The format is that of ``ansible-inventory --list``. ``~/`` at the start of a path is not expanded, so that the
same environment gives the same bytes for every user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.model.environment import Environment
from infra.model.gpu.drivers import branch, needs_fabric_manager
from infra.model.hosts.cluster import Driver, Host, HostsCluster, Repository
from infra.model.platform import installed
from infra.model.pool.pool import Pool
from infra.plan import sharing

Variables = dict[str, Any]
Keys = Mapping[str, str]
CONTROL_PLANE, NODES, WITH_GPUS = "kube_control_plane", "kube_node", "gpu"


def cluster_of(env: Environment) -> HostsCluster:
    """The environment's cluster, which must be of kind hosts."""
    assert isinstance(env.cluster, HostsCluster)
    return env.cluster


def key_paths(env: Environment) -> Iterator[tuple[str, str]]:
    """(field of the environment, path) of each repository's key."""
    cluster = cluster_of(env)
    drivers: list[tuple[str, Driver | None]] = [("cluster.driver", cluster.driver)]
    drivers += [(f"pools[{index}].driver", pool.driver) for index, pool in enumerate(env.pools)]
    if cluster.toolkit.repository:
        yield "cluster.toolkit.repository.key", cluster.toolkit.repository.key
    for path, driver in drivers:
        if driver and driver.repository:
            yield f"{path}.repository.key", driver.repository.key


def inventory(env: Environment, keys: Keys) -> dict[str, Any]:
    """Groups and host variables; ``keys`` has the text of every repository's key by its path."""
    cluster = cluster_of(env)
    hosts: dict[str, Variables] = {
        host.name: _ssh_variables(env, host) | _platform_variables(env, None)
        for host in cluster.control_plane
    }
    groups: dict[str, list[str]] = {
        CONTROL_PLANE: [host.name for host in cluster.control_plane],
        NODES: [],
        WITH_GPUS: [],
    }
    for pool in env.pools:
        names = [host.name for host in pool.hosts or ()]
        groups[NODES] += names
        groups[group_of(pool)] = names
        if pool.gpus:
            groups[WITH_GPUS] += names
        for host in pool.hosts or ():
            hosts[host.name] = (
                _ssh_variables(env, host) | _platform_variables(env, pool) | _gpu_variables(env, pool, keys)
            )
    return {
        "_meta": {"hostvars": {name: dict(sorted(hosts[name].items())) for name in sorted(hosts)}},
        "all": {"children": sorted([*groups, "ungrouped"])},
        **{name: {"hosts": sorted(members)} for name, members in sorted(groups.items())},
    }


def group_of(pool: Pool) -> str:
    """The pool's group; a group name in Ansible cannot contain a dash."""
    return f"pool_{pool.name.replace('-', '_')}"


def _ssh_variables(env: Environment, host: Host) -> Variables:
    """SSH variables; the host key is always checked."""
    cluster = cluster_of(env)
    known_hosts = f"-o UserKnownHostsFile={cluster.known_hosts} " if cluster.known_hosts else ""
    variables: Variables = {
        "ansible_host": host.ssh_address,
        "ansible_port": host.port,
        "ansible_user": cluster.user,
        "ansible_become": cluster.user != "root",
        "ansible_ssh_common_args": f"{known_hosts}-o StrictHostKeyChecking=yes",
    }
    if cluster.private_key:
        variables["ansible_ssh_private_key_file"] = cluster.private_key
    return variables


def _absolute(path: str | None) -> str:
    """Ansible runs in a folder of its own."""
    return str(Path(path).absolute()) if path and not path.startswith("~/") else path or ""


def _platform_variables(env: Environment, pool: Pool | None) -> Variables:
    cluster = cluster_of(env)
    return {
        "gpuform_environment": env.name,
        "gpuform_pool": pool.name if pool else "",
        "gpuform_kubeconfig": _absolute(cluster.kubeconfig),
        "gpuform_context": cluster.context or "",
        "gpuform_sharing": pool.sharing.model_dump(mode="json", exclude_none=True)
        if pool and pool.gpus
        else {},
        "gpuform_labels": sharing.pool_labels(env, pool) if pool else {},
        "gpuform_taints": sharing.pool_taints(env, pool) if pool else [],
        **rdma_variables(pool),
        **({"gpuform_distribution": cluster.distribution} if cluster.own_containerd else {}),
        **({"host_prep_firewall": False} if cluster.firewall == "host" else {}),
    }


def rdma_variables(pool: Pool | None) -> Variables:
    """What selects the adapters that are checked, if the pool has any."""
    if pool is None or pool.rdma is None:
        return {}
    selectors = pool.rdma.model_dump(include={"link_type", "interfaces"}, exclude_defaults=True, mode="json")
    return {"gpuform_rdma": selectors}


def _gpu_variables(env: Environment, pool: Pool, keys: Keys) -> Variables:
    if not pool.gpus:
        return {}
    cluster, gpu = cluster_of(env), pool.gpus[0]
    return {
        "validate_inventory_gpu": {"model": gpu.name, "product": gpu.device, "count": pool.gpu_count},
        **_driver_variables(cluster, pool, keys),
        "nvidia_container_toolkit_version": cluster.toolkit.version,
        "nvidia_container_toolkit_acknowledge": list(cluster.acknowledge),
        "nvidia_container_toolkit_runtime": cluster.runtime,
        "nvidia_container_toolkit_mode": cluster.toolkit_mode,
        "nvidia_container_toolkit_repository": _repository(cluster.toolkit.repository, keys),
        **_mig_variables(cluster, pool),
        "cuda_toolkit_version": cluster.cuda or "",
    }


def _driver_variables(cluster: HostsCluster, pool: Pool, keys: Keys) -> Variables:
    driver, gpu = installed.driver_of(cluster, pool), pool.gpus[0]
    runfile = driver.runfile
    theirs = driver.source == "host" and driver.modules is None
    return {
        "nvidia_driver_source": driver.source,
        "nvidia_driver_version": driver.version,
        "nvidia_driver_branch": str(branch(driver.version)),
        **({} if theirs else {"nvidia_driver_modules": installed.kernel_modules(driver, gpu)}),
        "nvidia_driver_fabricmanager": needs_fabric_manager(gpu, pool.gpu_count),
        "nvidia_driver_product": gpu.device,
        "nvidia_driver_count": pool.gpu_count,
        "nvidia_driver_repository": _repository(driver.repository, keys),
        "nvidia_driver_runfile": {"url": runfile.url, "sha256": runfile.sha256} if runfile else {},
        "nvidia_driver_kubeconfig": _absolute(cluster.kubeconfig),
        "nvidia_driver_context": cluster.context or "",
    }


def _repository(repository: Repository | None, keys: Keys) -> Variables:
    if repository is None:
        return {}
    return {
        "url": repository.url,
        "suite": repository.suite,
        "key": keys[repository.key],
        "fingerprint": repository.fingerprint,
    }


def _mig_variables(cluster: HostsCluster, pool: Pool) -> Variables:
    """The layout that the role applies; empty if the operator's MIG manager owns it, or without MIG."""
    layout = None if cluster.kubeconfig else sharing.mig_config_name(pool)
    config = sharing.mig_parted_config([pool]) if layout else None
    variables: Variables = {"nvidia_mig_layout": layout or "", "nvidia_mig_config": config or {}}
    if layout and pool.reset:  # else the role reboots a host with a pending change of its MIG mode
        variables["nvidia_mig_reboot"] = pool.reset == "reboot"
    return variables


def hosts_of(inventory: Mapping[str, Any], group: str = "all") -> Sequence[str]:
    """Sorted host names of a group; empty if the group does not exist."""
    if group == "all":
        return sorted(inventory["_meta"]["hostvars"])
    return list(inventory.get(group, {}).get("hosts", []))
