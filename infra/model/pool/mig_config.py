"""The name of a pool's MIG layout.

The MIG manager knows a layout by the name of a configuration: NVIDIA's if it ships the layout, else one that
spells it. The name is the value of the node label ``nvidia.com/mig.config``, so it has at most 63 characters.
NVIDIA's names are those of the configuration file that it ships with mig-parted 0.15.0: ``all-disabled``,
``all-enabled``, ``all-balanced`` and ``all-<profile>`` for as many slices of one profile as the GPU holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from infra.model.base.errors import InputError
from infra.model.base.fields import short_digest
from infra.model.gpu.mig import Layout, format_layout
from infra.model.gpu.models import Gpu
from infra.model.pool.layouts import Cut, all_name, cuts, standard_layout
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig

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
    if not pool.cuts:
        return DISABLED
    if isinstance(pool.sharing, Mig) and pool.sharing.name:
        return pool.sharing.name
    parts = []
    for cut in pool.cuts:
        numbers = "" if cut.devices is None else f"-on-{'-'.join(map(str, cut.devices))}"
        parts.append(_spelled_name(pool.gpus[0], cut.layout) + numbers)
    name = "-".join(parts) + (f"-of-{pool.gpu_count}" if pool.cuts[0].devices is not None else "")
    if len(name) <= _LONGEST:
        return name
    return f"{name[:54].rstrip('-.')}-{short_digest(name)}"


def check_names(pools: Sequence[Pool]) -> None:
    """Refuse a name that NVIDIA uses for another layout, or one name for two layouts on one GPU model."""
    pool_of: dict[tuple[str, str], Pool] = {}
    for index, pool in enumerate(pools):
        name = config_name(pool)
        if name is None or not pool.cuts:
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
    if pool.cuts == (Cut(shipped or {}),):
        return
    meaning = f"{format_layout(shipped)} on every {gpu.name}" if shipped else f"no layout on {gpu.name}"
    fact = f"{name!r} is NVIDIA's own name, and means {meaning}"
    raise InputError(path, fact, "use another name, or leave it out")


def _content(pool: Pool, gpu: Gpu) -> tuple[tuple[Cut, ...], int | None]:
    """The layouts on such a GPU, and GPUs per node; None if all GPUs are cut alike."""
    found = cuts(gpu, pool.sharing)
    return found, None if found[0].devices is None else pool.gpu_count


def _spelled_name(gpu: Gpu, layout: Layout) -> str:
    geometry = gpu.geometry
    assert geometry is not None
    order = {profile.name: index for index, profile in enumerate(geometry.profiles)}
    parts = sorted(layout.items(), key=lambda item: -order[item[0]])
    if len(parts) == 1 and parts[0][1] == geometry.max_slices(parts[0][0]):
        return all_name(parts[0][0])
    labels = [(name.replace("+", "."), count) for name, count in parts]
    return "-".join(part if count == 1 else f"{count}x{part}" for part, count in labels)
