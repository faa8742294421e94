"""Names of MIG manager configurations: NVIDIA's if it ships the layout, else one that spells it.

The name is the value of the node label ``nvidia.com/mig.config``, so it has at most 63 characters. NVIDIA's
names are those of the configuration file that it ships with mig-parted 0.15.0: ``all-disabled``,
``all-enabled``, ``all-balanced`` and ``all-<profile>`` for as many slices of one profile as the GPU holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from infra.model.digest import digest
from infra.model.errors import InputError
from infra.model.gpu import Gpu
from infra.model.layouts import resolve
from infra.model.mig import Layout, spell
from infra.model.pool import Pool
from infra.model.sharing import Mig

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
    name = _spelled(pool.gpus[0], layout)
    devices = cut(pool)
    if devices is not None:
        name += f"-on-{'-'.join(map(str, devices))}-of-{pool.gpu_count}"
    if len(name) <= _LONGEST:
        return name
    return f"{name[:54].rstrip('-.')}-{digest(name)}"


def cut(pool: Pool) -> tuple[int, ...] | None:
    """Numbers of a node's cut GPUs, ascending; None if all are cut."""
    devices = pool.sharing.devices if isinstance(pool.sharing, Mig) else None
    return None if devices is None else tuple(sorted(devices))


def standard(gpu: Gpu, name: str) -> Layout | None:
    """The layout that NVIDIA's configuration of that name sets on the GPU; None if it sets no layout."""
    geometry = gpu.geometry
    if geometry is None:
        return None
    if name == "all-balanced":
        # Half a GPU in its smallest slices, and the other half in larger ones: as in NVIDIA's file.
        larger = [p for p in geometry.profiles if p.compute in (2, 3) and re.fullmatch(r"\dg\.\d+gb", p.name)]
        found = {geometry.profiles[0].name: 2} | {profile.name: 1 for profile in larger}
        return found if geometry.fits(found) else None
    for profile in geometry.profiles:
        if name == _all(profile.name):
            return {profile.name: geometry.most(profile.name)}
    return None


def check(pools: Sequence[Pool]) -> None:
    """Refuse a name that NVIDIA uses for another layout, or one name for two layouts on one GPU model."""
    seen: dict[tuple[str, str], Pool] = {}
    for index, pool in enumerate(pools):
        name, layout = config_name(pool), pool.layout
        if name is None or layout is None:
            continue
        for gpu in pool.gpus:
            if _named(pool):
                _check_standard(pool, gpu, f"pools[{index}].sharing.name")
            other = seen.setdefault((name, gpu.name), pool)
            if _means(other, gpu) != _means(pool, gpu):
                one, two = (pool, other) if _named(pool) else (other, pool)
                raise InputError(
                    f"pools[{pools.index(one)}].sharing.name",
                    f"{name!r} is another layout in pool {two.name}, on the same GPU",
                    "use another name, or leave it out",
                )


def _named(pool: Pool) -> bool:
    return isinstance(pool.sharing, Mig) and pool.sharing.name is not None


def _check_standard(pool: Pool, gpu: Gpu, path: str) -> None:
    name = config_name(pool) or ""
    if not _STANDARD.fullmatch(name):
        return
    theirs = standard(gpu, name)
    if theirs == _means(pool, gpu)[0] and cut(pool) is None:
        return
    means = f"{spell(theirs)} on every {gpu.name}" if theirs else f"no layout on {gpu.name}"
    raise InputError(
        path, f"{name!r} is NVIDIA's own name, and means {means}", "use another name, or leave it out"
    )


def _means(pool: Pool, gpu: Gpu) -> tuple[Layout, tuple[int, ...] | None, int | None]:
    """(layout, cut GPUs, GPUs per node) of such a GPU; the last two are None if all GPUs are cut."""
    devices = cut(pool)
    layout = pool.sharing.layout if isinstance(pool.sharing, Mig) else pool.layout or {}
    return resolve(gpu, layout), devices, pool.gpu_count if devices else None


def _spelled(gpu: Gpu, layout: Layout) -> str:
    geometry = gpu.geometry
    assert geometry is not None
    order = {profile.name: index for index, profile in enumerate(geometry.profiles)}
    parts = sorted(layout.items(), key=lambda item: -order[item[0]])
    if len(parts) == 1 and parts[0][1] == geometry.most(parts[0][0]):
        return _all(parts[0][0])
    spelled = [(name.replace("+", "."), count) for name, count in parts]
    return "-".join(part if count == 1 else f"{count}x{part}" for part, count in spelled)


def _all(profile: str) -> str:
    return f"all-{profile.replace('+', '.')}"
