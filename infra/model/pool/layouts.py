"""A MIG layout: its slices on each GPU model, and the reasons to refuse it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infra.model.base.errors import InputError
from infra.model.base.fields import listing
from infra.model.gpu.mig import Layout, format_layout
from infra.model.gpu.models import Gpu
from infra.model.pool.sharing import Dra, Mig, Sharing


@dataclass(frozen=True)
class Cut:
    """Slices of each GPU, and the numbers of a node's GPUs that have them, ascending; None for all."""

    layout: Layout
    devices: tuple[int, ...] | None = None


def resolve(gpu: Gpu, layout: Any) -> Layout:
    """A layout as {profile: number} on that GPU, which must be MIG-capable."""
    if isinstance(layout, str):
        profile = layout.removeprefix("all-")
        assert gpu.geometry is not None
        return {profile: gpu.geometry.max_slices(profile)}
    return dict(layout)


def declared(sharing: Sharing) -> Iterator[tuple[str, dict[str, int] | str, tuple[int, ...] | None]]:
    """Each declared layout: its path in the pool, the layout, numbers of its GPUs (None: all)."""
    if isinstance(sharing, Mig) and sharing.layouts is not None:
        for index, entry in enumerate(sharing.layouts):
            yield f"sharing.layouts[{index}]", entry.layout, entry.devices
    elif isinstance(sharing, Mig | Dra) and sharing.layout is not None:
        yield "sharing", sharing.layout, sharing.devices if isinstance(sharing, Mig) else None


def cuts(gpu: Gpu, sharing: Sharing) -> tuple[Cut, ...]:
    """The declared layouts on that GPU, which must be MIG-capable."""
    return tuple(
        Cut(resolve(gpu, layout), None if devices is None else tuple(sorted(devices)))
        for _, layout, devices in declared(sharing)
    )


def check(gpus: Sequence[Gpu], counts: Sequence[int], sharing: Sharing) -> None:
    """Refuse a layout that one of these models cannot hold or that differs between them, and wrong GPUs.

    Args:
        counts: GPUs per node of the pool.

    Raises:
        InputError: its path is relative to the pool.
    """
    for path, layout, _ in declared(sharing):
        for gpu in gpus:
            _check_layout(gpu, layout, f"{path}.layout")
        expected = resolve(gpus[0], layout)
        for gpu in gpus[1:]:
            other = resolve(gpu, layout)
            if other != expected:
                texts = (
                    f"{format_layout(expected)} on {gpus[0].name}",
                    f"{format_layout(other)} on {gpu.name}",
                )
                fact = f"{layout} is {' and '.join(texts)}"
                remedy = "give {profile: number}, or make a pool for each model"
                raise InputError(f"{path}.layout", fact, remedy)
    if isinstance(sharing, Mig):
        _check_devices(sharing, counts)


def _check_devices(sharing: Mig, counts: Sequence[int]) -> None:
    """Refuse numbers of GPUs that nodes lack, and ``devices`` that names all GPUs."""
    key = "devices" if sharing.layouts is None else "layouts"
    if getattr(sharing, key) is None:
        return
    if len(counts) > 1:
        fact = f"nodes of the pool may have {' or '.join(map(str, counts))} GPUs"
        raise InputError(f"sharing.{key}", fact, f"give one count, or leave {key} out")
    (count,) = counts
    for path, _, devices in declared(sharing):
        assert devices is not None
        for index, number in enumerate(devices):
            if number >= count:
                fact = f"a node of the pool has {count} GPU{'s' if count > 1 else ''}, numbered from 0"
                remedy = f"use 0 to {count - 1}" if count > 1 else f"leave {key} out"
                raise InputError(f"{path}.devices[{index}]", fact, remedy)
        if len(devices) == count:
            remedy = "leave devices out" if key == "devices" else "use layout for all, or name fewer"
            raise InputError(f"{path}.devices", "names every GPU of a node", remedy)


def _check_layout(gpu: Gpu, layout: dict[str, int] | str, path: str) -> None:
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
            raise InputError(path, fact, listing_profiles(shorthands, layout))
        return
    if not layout:
        fact = "no slice is given"
        raise InputError(path, fact, "give {profile: number}, or use sharing: {kind: exclusive}")
    for name in layout:
        if name not in known:
            fact = f"{gpu.name} has no such profile"
            raise InputError(f"{path}.{name}", fact, listing_profiles(known, name))
    reason = geometry.refusal(layout)
    if reason:
        remedy = "take slices out, or see which layouts fit with `gpuform gpus`"
        raise InputError(path, f"{reason}, so {gpu.name} does not hold it", remedy)


def listing_profiles(known: Iterable[str], wrong: str) -> str:
    """As `listing`; means only a profile with as many compute slices, because their memory is the card's."""
    return listing(known, wrong, "(?:all)?((?:[0-9]+g)?)")


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
        if name == all_name(profile.name):
            return {profile.name: geometry.max_slices(profile.name)}
    return None


def all_name(profile: str) -> str:
    return f"all-{profile.replace('+', '.')}"
