"""Checks of the settings of NVIDIA's operator, or of its device plugin alone, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra import versions
from infra.model import drivers, unused
from infra.model.amounts import numbers
from infra.model.errors import InputError
from infra.model.gpu import Gpu, Modules
from infra.model.operator import GpuOperatorSpec, Mode, Ownership
from infra.model.pool import Pool
from infra.model.sharing import Dra, Mig
from infra.model.toolkit_env import SINCE_DROP_INS, ToolkitEnv

PATH = "gpu_operator"
_PINNED: Mapping[Mode, str] = {"operator": versions.GPU_OPERATOR, "device_plugin": versions.DEVICE_PLUGIN}


def check(cluster: str, spec: GpuOperatorSpec, owns: Ownership, pools: Sequence[Pool]) -> None:
    """Refuse the first setting that has no effect here, is not supported, or is known to be unsafe."""
    unused.check_operator(cluster, spec, owns)
    _check_chart(spec)
    if cluster == "embedded":
        _check_embedded(spec)
    if spec.mode == "existing" and cluster in ("aws", "embedded"):
        fact = "the stack makes this cluster, and nothing else brings an operator"
        raise InputError(f"{PATH}.mode", fact, "use mode: operator")
    if spec.mode != "operator":
        _check_alone(spec, owns, pools)
    if owns.driver == "operator":
        _check_driver(spec, pools)
    _check_floors(spec)
    if spec.mode == "operator":
        _check_toolkit_env(spec)


def check_monitoring(spec: GpuOperatorSpec) -> None:
    """The operator's exporter has counters and an interval of its owner's choice, and a GPU takes one."""
    if spec.mode == "existing":
        fact = f"the cluster's own operator decides what is measured ({PATH}.mode existing)"
        raise InputError("monitoring", fact, "leave it out, or use mode: operator")


def driver_version(spec: GpuOperatorSpec, pools: Sequence[Pool]) -> str:
    """One driver for all nodes: the declared one, the operator's default, or the last for all GPUs."""
    last = _last_branch(pools)
    chosen = versions.GPU_DRIVER if last is None else versions.GPU_DRIVER_OF_BRANCH.get(last, str(last))
    return spec.driver_version or chosen


def _last_branch(pools: Sequence[Pool]) -> int | None:
    """The last branch for all GPUs; None if that includes the operator's default."""
    branches = [drivers.last_branch_with_efa(gpu, pool) for pool in pools for gpu in pool.gpus]
    last = min((branch for branch in branches if branch is not None), default=None)
    return None if last is None or last >= drivers.branch(versions.GPU_DRIVER) else last


def chart_version(spec: GpuOperatorSpec) -> str:
    """Version of the chart: the declared one, or the pinned one of this mode."""
    return spec.version or _PINNED[spec.mode]


_FIRST: Mapping[Mode, tuple[int, int]] = {"operator": (22, 9), "device_plugin": (0, 14)}
"""The oldest supported charts. gpu-operator 22.9 is the first release that supports Kubernetes 1.25 (its
platform support page). The chart of k8s-device-plugin 0.14.0 is the first that installs GPU feature
discovery."""
_AHEAD = 2
"""Ours: years by which the operator, or majors by which the plugin, may be newer than the tested one."""


def _check_chart(spec: GpuOperatorSpec) -> None:
    """The operator's versions are years and months."""
    if spec.version is None or spec.mode == "existing":
        return
    version, tested = numbers(spec.version), _PINNED[spec.mode]
    month = spec.mode == "device_plugin" or 1 <= version[1] <= 12
    newest = numbers(tested)[0] + _AHEAD
    if not month or version[:2] < _FIRST[spec.mode] or version[0] > newest:
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


def _check_alone(spec: GpuOperatorSpec, owns: Ownership, pools: Sequence[Pool]) -> None:
    """MIG needs the operator's MIG manager, and DRA its label that keeps the device plugin off a node.

    The cluster's own operator is configured by its owner: by ConfigMaps that its ClusterPolicy names.
    """
    theirs = spec.mode == "existing"
    if owns.driver == "image" and any(pool.image.ships_device_plugin for pool in pools):
        fact = "Bottlerocket includes its own device plugin"
        raise InputError(f"{PATH}.mode", fact, "use mode: operator, or AL2023")
    if spec.mig_strategy != "none":
        raise InputError(
            f"{PATH}.mig_strategy",
            "the cluster's own operator decides it"
            if theirs
            else "the device plugin alone partitions no GPU",
            "leave it out, or use mode: operator",
        )
    for index, pool in enumerate(pools):
        if theirs and pool.gpus and pool.sharing.kind != "exclusive":
            fact = "the configuration of the cluster's own operator decides how GPUs are shared"
            raise InputError(f"pools[{index}].sharing.kind", fact, "use exclusive, or mode: operator")
        if isinstance(pool.sharing, Mig | Dra):
            missing = (
                "has no MIG manager"
                if isinstance(pool.sharing, Mig)
                else "keeps the device plugin on every node"
            )
            fact = f"{PATH}.mode device_plugin {missing}"
            raise InputError(f"pools[{index}].sharing.kind", fact, "use mode: operator, or another kind")
        for key in ("relayout", "reset"):
            if getattr(pool, key) is not None:
                fact = f"{PATH}.mode {spec.mode} has no MIG manager, so no layout changes"
                raise InputError(f"pools[{index}].{key}", fact, "leave it out, or use mode: operator")


def _check_driver(spec: GpuOperatorSpec, pools: Sequence[Pool]) -> None:
    """The operator installs one driver on all nodes, so it must support every GPU."""
    version = driver_version(spec, pools)
    every = [(gpu, pool) for pool in pools for gpu in pool.gpus]
    if spec.driver_version is None:
        _check_one_fits(version, every)
        last = _last_branch(pools)
        if last is not None and last not in versions.GPU_DRIVER_OF_BRANCH:
            fact = f"missing, and gpuform pins no driver of branch {last}, the last for all GPUs"
            raise InputError(f"{PATH}.driver_version", fact, f"give one of branch {last}")
    modules = None if spec.kernel_modules == "auto" else spec.kernel_modules
    _check_one_kind(modules, version, every)
    for gpu, pool in every:
        drivers.check(version, gpu, pool, f"{PATH}.driver_version")
        drivers.check_modules(modules, version, gpu, pool, f"{PATH}.kernel_modules", "auto")


def _check_one_fits(version: str, every: Sequence[tuple[Gpu, Pool]]) -> None:
    ends = [
        (last, gpu, pool)
        for gpu, pool in every
        if (last := drivers.last_branch_with_efa(gpu, pool)) is not None
    ]
    for gpu, pool in every:
        first = gpu.driver.first
        if ends and numbers(version) < numbers(first):
            last, oldest, where = min(ends, key=lambda one: one[0])
            raise InputError(
                f"{PATH}.driver",
                f"no driver supports both {oldest.name} (pool {where.name}, last branch {last}) and "
                f"{gpu.name} (pool {pool.name}, from {first} on)",
                "put them into two environments, or use driver: host",
            )


def _check_one_kind(modules: Modules | None, version: str, every: Sequence[tuple[Gpu, Pool]]) -> None:
    able = [(drivers.flavours(gpu, version), gpu, pool) for gpu, pool in every]
    only = {found[0]: (gpu, pool) for found, gpu, pool in reversed(able) if len(found) == 1}
    if modules and len(only) > 1:
        (one, at), (other, there) = only["open"], only["proprietary"]
        raise InputError(
            f"{PATH}.kernel_modules",
            f"{one.name} (pool {at.name}) needs open modules, "
            f"{other.name} (pool {there.name}) needs proprietary ones",
            "use auto, which selects them by the GPU of each node",
        )


def _check_toolkit_env(spec: GpuOperatorSpec) -> None:
    chart = chart_version(spec)
    toolkit, installer = spec.toolkit_version, f"operator {chart}"
    old, first = numbers(chart) < (25, 10), "v25.10.1"
    if toolkit:
        old, first, installer = numbers(toolkit) < (1, 18), "1.18.1", f"container toolkit {toolkit}"
    for name in SINCE_DROP_INS:
        if old and getattr(spec.toolkit_env, name) != ToolkitEnv.model_fields[name].default:
            fix = f"use {first} or newer, or leave it out"
            raise InputError(f"{PATH}.toolkit_env.{name}", f"{installer} does not read it", fix)


def _check_floors(spec: GpuOperatorSpec) -> None:
    """A version below a floor needs each open CVE acknowledged; others must not be acknowledged."""
    if spec.mode != "operator":
        return
    chart, toolkit = chart_version(spec), spec.toolkit_version
    by_chart = drivers.operator_holes(chart)
    by_toolkit = drivers.open_holes(toolkit) if toolkit else ()
    named = spec.acknowledge
    drivers.check_named(f"{PATH}.version", chart, by_chart, drivers.OPERATOR_FIXES, PATH, named)
    if toolkit:
        where = f"{PATH}.toolkit_version"
        drivers.check_named(where, toolkit, by_toolkit, drivers.TOOLKIT_FIXES, PATH, named)
    what = f"operator {chart}" + (f" and container toolkit {toolkit}" if toolkit else "")
    drivers.check_acknowledged(PATH, what, (*by_chart, *by_toolkit), named)
