"""A pool's MIG layout: its slices on each GPU model, the reasons to refuse it, and its name.

The MIG manager knows a layout by the name of a configuration: NVIDIA's if it ships the layout, else one that
spells it. The name is the value of the node label ``nvidia.com/mig.config``, so it has at most 63 characters.
NVIDIA's names are those of the configuration file that it ships with mig-parted 0.15.0: ``all-disabled``,
``all-enabled``, ``all-balanced`` and ``all-<profile>`` for as many slices of one profile as the GPU holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from infra.model.base import listing
from infra.model.errors import InputError
from infra.model.gpu import Gpu
from infra.model.mig import Layout, format_layout
from infra.model.sharing import Mig
from infra.model.values import short_digest

if TYPE_CHECKING:
    from infra.model.pool import Pool


def resolve(gpu: Gpu, layout: Any) -> Layout:
    """A layout as {profile: number} on that GPU, which must be MIG-capable."""
    if isinstance(layout, str):
        profile = layout.removeprefix("all-")
        assert gpu.geometry is not None
        return {profile: gpu.geometry.max_slices(profile)}
    return dict(layout)


def check(gpus: Sequence[Gpu], layout: dict[str, int] | str) -> None:
    """Refuse a layout that one of these models cannot hold, or that differs between them.

    Error paths are relative to the pool.
    """
    for gpu in gpus:
        _check_layout(gpu, layout)
    expected = resolve(gpus[0], layout)
    for gpu in gpus[1:]:
        other = resolve(gpu, layout)
        if other != expected:
            texts = f"{format_layout(expected)} on {gpus[0].name}", f"{format_layout(other)} on {gpu.name}"
            fact = f"{layout} is {' and '.join(texts)}"
            raise InputError("sharing.layout", fact, "give {profile: number}, or make a pool for each model")


def check_devices(devices: Sequence[int], counts: Sequence[int]) -> None:
    """Refuse GPU numbers that nodes lack, or that name all their GPUs; ``counts``: GPUs per node of the pool.

    Error paths are relative to the pool.
    """
    if len(counts) > 1:
        fact = f"nodes of the pool may have {' or '.join(map(str, counts))} GPUs"
        raise InputError("sharing.devices", fact, "give one count, or leave devices out")
    (count,) = counts
    for index, number in enumerate(devices):
        if number >= count:
            fact = f"a node of the pool has {count} GPU{'s' if count > 1 else ''}, numbered from 0"
            remedy = f"use 0 to {count - 1}" if count > 1 else "leave devices out"
            raise InputError(f"sharing.devices[{index}]", fact, remedy)
    if len(devices) == count:
        raise InputError("sharing.devices", "names every GPU of a node", "leave devices out")


def _check_layout(gpu: Gpu, layout: dict[str, int] | str) -> None:
    geometry = gpu.geometry
    if geometry is None:
        remedy = "share it without layout by time_slicing or mps, or use a GPU with MIG, as A100-40GB"
        raise InputError("sharing.kind", f"{gpu.name} does not support MIG", remedy)
    known = [profile.name for profile in geometry.profiles]
    if isinstance(layout, str):
        profile = layout.removeprefix("all-")
        if not layout.startswith("all-") or profile not in known:
            shorthands = [f"all-{name}" for name in known]
            fact = f"unknown layout {layout!r} for {gpu.name}"
            raise InputError("sharing.layout", fact, listing(shorthands, layout))
        return
    if not layout:
        fact = "no slice is given"
        raise InputError("sharing.layout", fact, "give {profile: number}, or use sharing: {kind: exclusive}")
    for name in layout:
        if name not in known:
            fact = f"{gpu.name} has no such profile"
            raise InputError(f"sharing.layout.{name}", fact, listing(known, name))
    reason = geometry.refusal(layout)
    if reason:
        remedy = "take slices out, or see which layouts fit with `gpuform gpus`"
        raise InputError("sharing.layout", f"{reason}, so {gpu.name} does not hold it", remedy)


DISABLED = "all-disabled"
_STANDARD = re.compile(r"all-(disabled|enabled|balanced|[0-9]+g\.[0-9]+gb(\.me|\.me\.all|\.gfx|-me)?)")
_LONGEST = 63


def config_name(pool: Pool) -> str | None:
    """Name of the MIG manager's configuration for the pool's nodes; None for GPUs without MIG.

    A MIG-capable pool without a layout has ``all-disabled``: it may have been cut before. If only some of its
    models are capable, the result is None, as no MIG manager would answer on the other nodes; the operator's
    default, ``all-disabled``, applies to the capable ones.
    """
    if not pool.mig_capable:
        return None
    layout = pool.layout
    if layout is None:
        return DISABLED
    if isinstance(pool.sharing, Mig) and pool.sharing.name:
        return pool.sharing.name
    name = _spelled_name(pool.gpus[0], layout)
    devices = mig_devices(pool)
    if devices is not None:
        name += f"-on-{'-'.join(map(str, devices))}-of-{pool.gpu_count}"
    if len(name) <= _LONGEST:
        return name
    return f"{name[:54].rstrip('-.')}-{short_digest(name)}"


def mig_devices(pool: Pool) -> tuple[int, ...] | None:
    """Numbers of a node's cut GPUs, ascending; None if all are cut."""
    devices = pool.sharing.devices if isinstance(pool.sharing, Mig) else None
    return None if devices is None else tuple(sorted(devices))


def standard_layout(gpu: Gpu, name: str) -> Layout | None:
    """The layout that NVIDIA's configuration of that name sets on the GPU; None if it sets no layout."""
    geometry = gpu.geometry
    if geometry is None:
        return None
    if name == "all-balanced":
        # Half a GPU in its smallest slices, and the other half in larger ones: as in NVIDIA's file.
        larger = [p for p in geometry.profiles if p.compute in (2, 3) and re.fullmatch(r"\dg\.\d+gb", p.name)]
        layout = {geometry.profiles[0].name: 2} | {profile.name: 1 for profile in larger}
        return layout if geometry.fits(layout) else None
    for profile in geometry.profiles:
        if name == _all_name(profile.name):
            return {profile.name: geometry.max_slices(profile.name)}
    return None


def check_names(pools: Sequence[Pool]) -> None:
    """Refuse a name that NVIDIA uses for another layout, or one name for two layouts on one GPU model."""
    pool_of: dict[tuple[str, str], Pool] = {}
    for index, pool in enumerate(pools):
        name, layout = config_name(pool), pool.layout
        if name is None or layout is None:
            continue
        for gpu in pool.gpus:
            if _has_chosen_name(pool):
                _check_standard(pool, gpu, f"pools[{index}].sharing.name")
            other = pool_of.setdefault((name, gpu.name), pool)
            if _content(other, gpu) != _content(pool, gpu):
                named, other_pool = (pool, other) if _has_chosen_name(pool) else (other, pool)
                fact = f"{name!r} is another layout in pool {other_pool.name}, on the same GPU"
                remedy = "use another name, or leave it out"
                raise InputError(f"pools[{pools.index(named)}].sharing.name", fact, remedy)


def _has_chosen_name(pool: Pool) -> bool:
    return isinstance(pool.sharing, Mig) and pool.sharing.name is not None


def _check_standard(pool: Pool, gpu: Gpu, path: str) -> None:
    name = config_name(pool) or ""
    if not _STANDARD.fullmatch(name):
        return
    shipped = standard_layout(gpu, name)
    if shipped == _content(pool, gpu)[0] and mig_devices(pool) is None:
        return
    meaning = f"{format_layout(shipped)} on every {gpu.name}" if shipped else f"no layout on {gpu.name}"
    fact = f"{name!r} is NVIDIA's own name, and means {meaning}"
    raise InputError(path, fact, "use another name, or leave it out")


def _content(pool: Pool, gpu: Gpu) -> tuple[Layout, tuple[int, ...] | None, int | None]:
    """(layout, cut GPUs, GPUs per node) of such a GPU; the last two are None if all GPUs are cut."""
    device_numbers = mig_devices(pool)
    layout = pool.sharing.layout if isinstance(pool.sharing, Mig) else pool.layout or {}
    return resolve(gpu, layout), device_numbers, pool.gpu_count if device_numbers else None


def _spelled_name(gpu: Gpu, layout: Layout) -> str:
    geometry = gpu.geometry
    assert geometry is not None
    order = {profile.name: index for index, profile in enumerate(geometry.profiles)}
    parts = sorted(layout.items(), key=lambda item: -order[item[0]])
    if len(parts) == 1 and parts[0][1] == geometry.max_slices(parts[0][0]):
        return _all_name(parts[0][0])
    labels = [(name.replace("+", "."), count) for name, count in parts]
    return "-".join(part if count == 1 else f"{count}x{part}" for part, count in labels)


def _all_name(profile: str) -> str:
    return f"all-{profile.replace('+', '.')}"
