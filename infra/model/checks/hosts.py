"""Checks of an environment of own hosts, with the reason for each refusal; without reaching a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.model.base.errors import InputError
from infra.model.base.fields import ALL_GROUPS, LOCALHOST
from infra.model.base.hostnames import normalize_host
from infra.model.base.quantities import version_numbers
from infra.model.checks import operator
from infra.model.gpu import drivers
from infra.model.gpu.models import ONLY_ARM64
from infra.model.hosts.cluster import CDI, MAJORS, Driver, Host, HostsCluster, format_version
from infra.model.platform.installed import driver_of
from infra.model.platform.operator import GpuOperatorSpec
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mps

CLUSTER_KEYS = (
    *("scheduling", "priorities", "namespaces", "queues", "workloads", "health", "monitoring", "registries"),
)
"""Keys of the environment that have no effect without a cluster."""


def check(
    cluster: HostsCluster, spec: GpuOperatorSpec, pools: Sequence[Pool], cluster_values: Mapping[str, object]
) -> None:
    """Refuse the first setting that the hosts, or the software on them, do not support.

    ``cluster_values``: the environment's values of ``CLUSTER_KEYS``, which need a cluster.
    """
    _check_hosts(cluster, pools)
    for index, pool in enumerate(pools):
        _check_pool(cluster, pool, f"pools[{index}]")
    _check_toolkit(cluster)
    _check_runtime(cluster, pools)
    _check_joined(cluster, spec, cluster_values)
    _check_mps_daemon(cluster, spec, pools)


def _check_hosts(cluster: HostsCluster, pools: Sequence[Pool]) -> None:
    place_of: dict[str, str] = {}
    host_at: dict[tuple[str, int], str] = {}
    for path, place, host in _hosts(cluster, pools):
        if host.name in place_of:
            fact = f"host {host.name!r} is already in {place_of[host.name]}"
            raise InputError(path, fact, "name it in one place only")
        place_of[host.name] = place
        owner = host_at.setdefault((normalize_host(host.ssh_address), host.port), host.name)
        if owner != host.name:
            fact = f"{host.ssh_address} port {host.port} is the address of host {owner!r}"
            raise InputError(path, fact, "give each host an address of its own")


def _hosts(cluster: HostsCluster, pools: Sequence[Pool]) -> Iterator[tuple[str, str, Host]]:
    for index, host in enumerate(cluster.control_plane):
        yield f"cluster.control_plane[{index}]", "cluster.control_plane", host
    for pool_index, pool in enumerate(pools):
        for index, host in enumerate(pool.hosts or ()):
            yield f"pools[{pool_index}].hosts[{index}]", f"pool {pool.name}", host


def _check_pool(cluster: HostsCluster, pool: Pool, path: str) -> None:
    if pool.name in (*ALL_GROUPS, LOCALHOST):
        fact = f"{pool.name!r} is what Ansible calls other hosts than the pool's"
        raise InputError(f"{path}.name", fact, "use another name")
    if pool.hosts is None:
        raise InputError(f"{path}.hosts", "missing", "name the pool's hosts")
    if not pool.gpus:
        if pool.driver:
            fact = "the pool has no GPU"
            raise InputError(f"{path}.driver", fact, "leave it out, or give the pool a gpu: {models, count}")
        return
    for gpu in pool.gpus:
        if gpu.name in ONLY_ARM64:
            fact = f"{gpu.name} is in arm64 hosts, and the roles install packages for x86_64"
            raise InputError(f"{path}.gpu", fact, "use cluster kind existing")
    if len(pool.gpus) > 1:
        fact = f"has {len(pool.gpus)} models, and the hosts of a pool have one"
        raise InputError(f"{path}.gpu.models", fact, "give a pool for each")
    if pool.driver is None and cluster.driver is None:
        remedy = "give cluster.driver, or the pool a driver: {source: nvidia, version: '580.178.04'}"
        raise InputError(f"{path}.driver", "missing, and the cluster has none", remedy)
    driver_path = f"{path}.driver" if pool.driver else "cluster.driver"
    driver, gpu = driver_of(cluster, pool), pool.gpus[0]
    operator.check_driver(driver.version, gpu, pool, f"{driver_path}.version")
    operator.check_modules(driver.modules, driver.version, gpu, pool, f"{driver_path}.modules")
    if cluster.cuda:
        _check_cuda(cluster.cuda, driver_of(cluster, pool), pool)


def _check_cuda(cuda: str, driver: Driver, pool: Pool) -> None:
    gpu = pool.gpus[0]
    path, major = "cluster.cuda", version_numbers(cuda)[0]
    min_branch = drivers.FIRST_BRANCH_OF_CUDA[major]
    if drivers.branch(driver.version) < min_branch:
        fact = f"programs of CUDA {cuda} do not run with driver {driver.version} (pool {pool.name})"
        raise InputError(path, fact, f"use a driver of branch {min_branch} or newer, or an older CUDA")
    first, last = drivers.first_cuda(gpu.compute), drivers.LAST_CUDA_OF_FAMILY.get(gpu.family)
    if version_numbers(cuda) < first:
        first_version = ".".join(str(part) for part in first)
        fact = f"CUDA {cuda} does not support {gpu.name} (pool {pool.name})"
        raise InputError(path, fact, f"use {first_version} or newer")
    if last is not None and major > last:
        fact = f"CUDA {cuda} no longer supports {gpu.name} (pool {pool.name})"
        raise InputError(path, fact, f"use {last}.x or older")


def _check_toolkit(cluster: HostsCluster) -> None:
    """A version below the floor needs each open CVE acknowledged; others must not be acknowledged."""
    version, path, accepted = cluster.toolkit.version, "cluster.toolkit.version", cluster.acknowledge
    cves = drivers.check_cves(path, version, drivers.TOOLKIT_FIXES, "cluster", accepted)
    drivers.check_acknowledged("cluster", f"container toolkit {version}", cves, accepted)


def _check_runtime(cluster: HostsCluster, pools: Sequence[Pool]) -> None:
    """Refuse what the declared version of the container runtime cannot do."""
    if cluster.own_containerd and cluster.runtime != "containerd":
        fact = f"{cluster.distribution} runs a containerd of its own"
        remedy = "leave it out; with --container-runtime-endpoint, use cluster.distribution: kubeadm"
        raise InputError("cluster.runtime", fact, remedy)
    if cluster.runtime_version is None:
        return
    cdi, version = CDI[cluster.runtime], version_numbers(cluster.runtime_version)
    if version[0] not in MAJORS[cluster.runtime]:
        fact = f"{cluster.runtime} has no version {cluster.runtime_version}"
        majors = " or ".join(f"{major}.x" for major in MAJORS[cluster.runtime])
        raise InputError("cluster.runtime_version", fact, f"use {majors}")
    if cluster.runtime == "crio" and version < cdi.first:
        fact = f"CRI-O {cluster.runtime_version} has no CDI, by which its containers get GPUs"
        raise InputError("cluster.runtime_version", fact, f"use CRI-O {format_version(cdi.first)} or newer")
    if cluster.toolkit_mode == "cdi" and version < cluster.first_cdi:
        verb = "has CDI off" if cluster.own_containerd else "has no CDI"
        first = format_version(cluster.first_cdi)
        fact = f"containerd {cluster.runtime_version} {verb}, which came with {first}"
        raise InputError("cluster.toolkit.mode", fact, "use runtime, or a newer containerd")
    for index, pool in enumerate(pools):
        if pool.by_claim and not cluster.by_cdi and version < cdi.first_enabled:
            fact = "claimed GPUs are CDI devices, which the hosts' containerd is not configured for"
            remedy = (
                f"use cluster.toolkit.mode: cdi, with containerd {format_version(cluster.first_cdi)} or newer"
            )
            raise InputError(f"pools[{index}].sharing.kind", fact, remedy)


def warnings(cluster: HostsCluster, pools: Sequence[Pool]) -> Iterator[str]:
    """Drivers without security fixes; GPUs only for pods with a RuntimeClass that nothing declares."""
    yield from dict.fromkeys(
        warning
        for index, pool in enumerate(pools)
        for gpu in pool.gpus
        for warning in drivers.advice(
            driver_of(cluster, pool).version,
            gpu.driver.last,
            f"pools[{index}].driver.version" if pool.driver else "cluster.driver.version",
        )
    )
    is_declared = cluster.toolkit.mode or cluster.runtime_version or cluster.runtime == "crio"
    if cluster.kubeconfig and not is_declared and any(pool.gpus for pool in pools):
        fact = "missing, so only pods with runtimeClassName: nvidia get GPUs; declared pods have it"
        yield f"cluster.runtime_version: {fact}; give the hosts' oldest containerd, or toolkit.mode"


def _check_mps_daemon(cluster: HostsCluster, spec: GpuOperatorSpec, pools: Sequence[Pool]) -> None:
    """The MPS daemon of the device plugin's chart gets the driver's programs only from NVIDIA's runtime."""
    for index, pool in enumerate(pools):
        if isinstance(pool.sharing, Mps) and spec.mode == "device_plugin" and cluster.toolkit_mode == "cdi":
            raise InputError(
                f"pools[{index}].sharing.kind",
                "without the operator MPS's daemon starts with NVIDIA's runtime, which the hosts do not have",
                "use cluster.toolkit.mode: runtime, or gpu_operator.mode: operator",
            )


def _check_joined(cluster: HostsCluster, spec: GpuOperatorSpec, cluster_values: Mapping[str, object]) -> None:
    if cluster.kubeconfig:
        return
    if cluster.context:
        raise InputError("cluster.context", "no kubeconfig is given", "give kubeconfig too")
    for key in ("repository", "version"):
        if getattr(spec, key):
            fact = "the hosts have joined no cluster that gets the operator"
            raise InputError(f"gpu_operator.{key}", fact, "give cluster.kubeconfig first")
    for key, value in cluster_values.items():
        if value:
            use = {"workloads": "run them", "registries": "pull images"}.get(key, "have any")
            fact = f"the hosts have joined no cluster that could {use}"
            raise InputError(key, fact, "give cluster.kubeconfig first")
