"""Which chart, driver and kernel modules an environment installs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra import facts, versions
from infra.model.gpu import drivers
from infra.model.gpu.models import Gpu, Modules
from infra.model.hosts.cluster import Driver, HostsCluster
from infra.model.platform.operator import GpuOperatorSpec, Mode
from infra.model.pool.pool import Pool

LAST_WITH_EFA = {row.efa_with: row.branch for row in facts.LAST_BRANCHES if row.efa_with}
"""Last branch with GPUDirect over the Elastic Fabric Adapter, by GPU."""


def last_branch_with_efa(gpu: Gpu, pool: Pool) -> int | None:
    """The last branch that supports the GPU and, if the pool's machine has any, its EFA adapters."""
    efa = LAST_WITH_EFA.get(gpu.name) if pool.flavor and pool.flavor.efa else None
    return min((last for last in (gpu.driver.last, efa) if last is not None), default=None)


PATH = "gpu_operator"
PINNED_CHARTS: Mapping[Mode, str] = {
    "operator": versions.GPU_OPERATOR,
    "device_plugin": versions.DEVICE_PLUGIN,
}


def driver_version(spec: GpuOperatorSpec, pools: Sequence[Pool]) -> str:
    """One driver for all nodes: the declared one, the operator's default, or the last for all GPUs."""
    last = common_last_branch(pools)
    default = versions.GPU_DRIVER if last is None else versions.GPU_DRIVER_OF_BRANCH.get(last, str(last))
    return spec.driver_version or default


def common_last_branch(pools: Sequence[Pool]) -> int | None:
    """The last branch for all GPUs; None if that includes the operator's default."""
    last = oldest_last_branch(pools)
    return None if last is None or last >= drivers.branch(versions.GPU_DRIVER) else last


def oldest_last_branch(pools: Sequence[Pool]) -> int | None:
    branches = [last_branch_with_efa(gpu, pool) for pool in pools for gpu in pool.gpus]
    return min((branch for branch in branches if branch is not None), default=None)


def chart_version(spec: GpuOperatorSpec) -> str:
    """Version of the chart: the declared one, or the pinned one of this mode."""
    return spec.version or PINNED_CHARTS[spec.mode]


def driver_of(cluster: HostsCluster, pool: Pool) -> Driver:
    """The driver of a pool with GPUs: its own, or the cluster's."""
    driver = pool.driver or cluster.driver
    assert driver is not None  # checked when the environment was parsed
    return driver


def kernel_modules(driver: Driver, gpu: Gpu) -> Modules:
    """Kernel modules of a pool's hosts: the declared ones, or those that NVIDIA recommends."""
    return driver.modules or drivers.recommended_modules(gpu, driver.version)
