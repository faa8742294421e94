"""Checks of the settings of NVIDIA's operator, or of its device plugin alone, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra import versions
from infra.model.base.errors import InputError
from infra.model.base.quantities import version_numbers
from infra.model.gpu import drivers
from infra.model.gpu.drivers import branch, supported_modules
from infra.model.gpu.models import Gpu, Modules
from infra.model.platform import installed, unused
from infra.model.platform.installed import (
    PATH,
    PINNED_CHARTS,
    chart_version,
    common_last_branch,
    driver_version,
    last_branch_with_efa,
    oldest_last_branch,
)
from infra.model.platform.monitoring import Monitoring
from infra.model.platform.operator import DROP_IN_VARIABLES, GpuOperatorSpec, Mode, Ownership, ToolkitEnv
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Dra, Mig


def check_operator(cluster: str, spec: GpuOperatorSpec, ownership: Ownership, pools: Sequence[Pool]) -> None:
    """Refuse the first setting that has no effect here, is not supported, or is known to be unsafe."""
    unused.check_operator(cluster, spec, ownership)
    _check_chart(spec)
    if cluster == "embedded":
        _check_embedded(spec)
    if spec.mode == "existing" and cluster in ("aws", "embedded"):
        fact = "the stack makes this cluster, and nothing else brings an operator"
        raise InputError(f"{PATH}.mode", fact, "use mode: operator")
    if spec.taint is None and cluster not in ("existing", "hosts"):
        fact = "the stack makes these nodes, and pods without GPUs would fill them"
        raise InputError(f"{PATH}.gpu_taint", fact, "give a key, or leave it out")
    if spec.mode != "operator":
        _check_without_operator(spec, ownership, pools)
    if ownership.driver == "operator":
        _check_driver(spec, pools)
    _check_cves(spec)
    if spec.mode == "operator":
        _check_toolkit_env(spec)


def check_monitoring(spec: GpuOperatorSpec, monitoring: Monitoring) -> None:
    """The operator's exporter has counters of its owner's choice, and a GPU takes one exporter."""
    if spec.mode != "existing":
        return
    fact = f"the cluster's own operator decides what is measured ({PATH}.mode existing)"
    if monitoring.prometheus is None:
        remedy = f"name the cluster's Prometheus: prometheus, or use {PATH}.mode: operator"
        raise InputError("monitoring", fact, remedy)
    if monitoring.counters:
        raise InputError("monitoring.counters", fact, "leave it out")


def operator_warnings(spec: GpuOperatorSpec, pools: Sequence[Pool]) -> Iterator[str]:
    """A declared driver without security fixes."""
    if spec.driver_version:
        yield from drivers.advice(spec.driver_version, oldest_last_branch(pools), f"{PATH}.driver_version")


_OLDEST_CHARTS: Mapping[Mode, tuple[int, int]] = {"operator": (22, 9), "device_plugin": (0, 14)}
"""The oldest supported charts. gpu-operator 22.9 is the first release that supports Kubernetes 1.25 (its
platform support page). The chart of k8s-device-plugin 0.14.0 is the first that installs GPU feature
discovery."""
_MAX_AHEAD = 2
"""Ours: years by which the operator, or majors by which the plugin, may be newer than the tested one."""


def _check_chart(spec: GpuOperatorSpec) -> None:
    """The operator's versions are years and months."""
    if spec.version is None or spec.mode == "existing":
        return
    version, tested = version_numbers(spec.version), PINNED_CHARTS[spec.mode]
    month = spec.mode == "device_plugin" or 1 <= version[1] <= 12
    newest = version_numbers(tested)[0] + _MAX_AHEAD
    if not month or version[:2] < _OLDEST_CHARTS[spec.mode] or version[0] > newest:
        fact = f"no chart {spec.version} has the settings of {tested}, which this release is tested with"
        raise InputError(f"{PATH}.version", fact, "use a version that its releases list, or leave it out")


def _check_embedded(spec: GpuOperatorSpec) -> None:
    folder = "gpu-operator-sim" if spec.mode == "operator" else "device-plugin-sim"
    for key in ("repository", "version", "driver_repository", "driver_image"):
        if getattr(spec, key):
            fact = f"an embedded cluster uses the chart in charts/{folder}"
            raise InputError(f"{PATH}.{key}", fact, "leave it out, or use cluster kind existing")
    for key in ("driver", "toolkit"):
        if getattr(spec, key) == "host":
            fact = f"simulated nodes come without a {key}"
            raise InputError(f"{PATH}.{key}", fact, "use operator, or cluster kind existing")


def _check_without_operator(spec: GpuOperatorSpec, ownership: Ownership, pools: Sequence[Pool]) -> None:
    """MIG needs the operator's MIG manager, and DRA its label that keeps the device plugin off a node.

    The cluster's own operator or device plugin is configured by its owner; what is declared of sharing then
    describes what the nodes offer.
    """
    is_existing = spec.mode == "existing"
    if ownership.driver == "image" and any(pool.image.ships_device_plugin for pool in pools):
        fact = "Bottlerocket includes its own device plugin"
        raise InputError(f"{PATH}.mode", fact, "use mode: operator, or AL2023")
    if spec.mig_strategy != "none":
        raise InputError(
            f"{PATH}.mig_strategy",
            "the cluster's own operator decides it"
            if is_existing
            else "the device plugin alone partitions no GPU",
            "leave it out, or use mode: operator",
        )
    for index, pool in enumerate(pools):
        if isinstance(pool.sharing, Dra) or (isinstance(pool.sharing, Mig) and not is_existing):
            missing = (
                "has no MIG manager"
                if isinstance(pool.sharing, Mig)
                else "keeps the device plugin on every node"
            )
            fact = f"{PATH}.mode {spec.mode} {missing}"
            remedy = f"use {PATH}.mode: operator, or another kind"
            raise InputError(f"pools[{index}].sharing.kind", fact, remedy)
        for key in ("relayout", "reset"):
            if getattr(pool, key) is not None:
                fact = f"{PATH}.mode {spec.mode} has no MIG manager, so no layout changes"
                raise InputError(f"pools[{index}].{key}", fact, f"leave it out, or use {PATH}.mode: operator")


def _check_driver(spec: GpuOperatorSpec, pools: Sequence[Pool]) -> None:
    """The operator installs one driver on all nodes, so it must support every GPU."""
    version = driver_version(spec, pools)
    pairs = [(gpu, pool) for pool in pools for gpu in pool.gpus]
    if spec.driver_version is None:
        _check_common_driver(version, pairs)
        last = common_last_branch(pools)
        if last is not None and last not in versions.GPU_DRIVER_OF_BRANCH:
            fact = f"missing, and gpuform pins no driver of branch {last}, the last for all GPUs"
            raise InputError(f"{PATH}.driver_version", fact, f"give one of branch {last}")
    modules = None if spec.kernel_modules == "auto" else spec.kernel_modules
    _check_common_modules(modules, version, pairs)
    for gpu, pool in pairs:
        check_driver(version, gpu, pool, f"{PATH}.driver_version")
        check_modules(modules, version, gpu, pool, f"{PATH}.kernel_modules", "auto")


def _check_common_driver(version: str, pairs: Sequence[tuple[Gpu, Pool]]) -> None:
    last_branches = [
        (last, gpu, pool)
        for gpu, pool in pairs
        if (last := installed.last_branch_with_efa(gpu, pool)) is not None
    ]
    for gpu, pool in pairs:
        first = gpu.driver.first
        if last_branches and version_numbers(version) < version_numbers(first):
            last, oldest, oldest_pool = min(last_branches, key=lambda entry: entry[0])
            raise InputError(
                f"{PATH}.driver",
                f"no driver supports both {oldest.name} (pool {oldest_pool.name}, last branch {last}) and "
                f"{gpu.name} (pool {pool.name}, from {first} on)",
                "put them into two environments, or use driver: host",
            )


def _check_common_modules(modules: Modules | None, version: str, pairs: Sequence[tuple[Gpu, Pool]]) -> None:
    supported = [(drivers.supported_modules(gpu, version), gpu, pool) for gpu, pool in pairs]
    only_option = {kinds[0]: (gpu, pool) for kinds, gpu, pool in reversed(supported) if len(kinds) == 1}
    if modules and len(only_option) > 1:
        (open_gpu, open_pool), (closed_gpu, closed_pool) = only_option["open"], only_option["proprietary"]
        raise InputError(
            f"{PATH}.kernel_modules",
            f"{open_gpu.name} (pool {open_pool.name}) needs open modules, "
            f"{closed_gpu.name} (pool {closed_pool.name}) needs proprietary ones",
            "use auto, which selects them by the GPU of each node",
        )


def _check_toolkit_env(spec: GpuOperatorSpec) -> None:
    chart = chart_version(spec)
    toolkit, installer = spec.toolkit_version, f"operator {chart}"
    old, first = version_numbers(chart) < (25, 10), "v25.10.1"
    if toolkit:
        old, first, installer = version_numbers(toolkit) < (1, 18), "1.18.1", f"container toolkit {toolkit}"
    for name in DROP_IN_VARIABLES:
        if old and getattr(spec.toolkit_env, name) != ToolkitEnv.model_fields[name].default:
            remedy = f"use {first} or newer, or leave it out"
            raise InputError(f"{PATH}.toolkit_env.{name}", f"{installer} does not read it", remedy)


def _check_cves(spec: GpuOperatorSpec) -> None:
    """A version below a floor needs each open CVE acknowledged; others must not be acknowledged."""
    if spec.mode != "operator":
        return
    chart, toolkit = chart_version(spec), spec.toolkit_version
    accepted, product = spec.acknowledge, f"operator {chart}"
    cves = drivers.check_cves(f"{PATH}.version", chart, drivers.OPERATOR_FIXES, PATH, accepted)
    if toolkit:
        path, product = f"{PATH}.toolkit_version", f"{product} and container toolkit {toolkit}"
        cves += drivers.check_cves(path, toolkit, drivers.TOOLKIT_FIXES, PATH, accepted)
    drivers.check_acknowledged(PATH, product, cves, accepted)


def check_driver(version: str, gpu: Gpu, pool: Pool, path: str) -> None:
    """Refuse a driver that is too new or too old for the GPU, or too old for its MIG layout."""
    support, last = gpu.driver, last_branch_with_efa(gpu, pool)
    if last is not None and branch(version) > last:
        subject = gpu.name if last == gpu.driver.last else f"EFA with {gpu.name}"
        fact = f"{version} does not support {subject} (pool {pool.name}): its last branch is {last}"
        raise InputError(path, fact, f"use {last} or an older branch")
    if version_numbers(version) < version_numbers(support.first):
        fact = f"{version} does not support {gpu.name} yet (pool {pool.name})"
        raise InputError(path, fact, f"use {support.first} or newer")
    if pool.cuts and support.mig and version_numbers(version) < version_numbers(support.mig):
        fact = f"{version} does not support MIG on {gpu.name} yet (pool {pool.name})"
        raise InputError(path, fact, f"use {support.mig} or newer")


def check_modules(
    modules: Modules | None, version: str, gpu: Gpu, pool: Pool, path: str, alternative: str = "leave it out"
) -> None:
    """Refuse kernel modules that do not support the GPU in this branch; None: as NVIDIA recommends."""
    supported = supported_modules(gpu, version)
    if modules and modules not in supported:
        fact = f"{modules} modules do not support {gpu.name} in branch {branch(version)}"
        raise InputError(path, f"{fact} (pool {pool.name})", f"use {supported[0]}, or {alternative}")
