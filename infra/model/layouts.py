"""A pool's MIG layout: its slices on each GPU model, and the reasons to refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.model.base import listing
from infra.model.errors import InputError
from infra.model.gpu import Gpu
from infra.model.mig import Layout, spell


def resolve(gpu: Gpu, layout: Any) -> Layout:
    """A layout as {profile: number} on that GPU, which must be MIG-capable."""
    if isinstance(layout, str):
        profile = layout.removeprefix("all-")
        assert gpu.geometry is not None
        return {profile: gpu.geometry.most(profile)}
    return dict(layout)


def check(gpus: Sequence[Gpu], layout: dict[str, int] | str) -> None:
    """Refuse a layout that one of these models cannot hold, or that differs between them.

    Error paths are relative to the pool.
    """
    for gpu in gpus:
        _check(gpu, layout)
    first = resolve(gpus[0], layout)
    for gpu in gpus[1:]:
        other = resolve(gpu, layout)
        if other != first:
            fact = f"{layout} is {spell(first)} on {gpus[0].name} and {spell(other)} on {gpu.name}"
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


def _check(gpu: Gpu, layout: dict[str, int] | str) -> None:
    geometry = gpu.geometry
    if geometry is None:
        raise InputError(
            "sharing.kind",
            f"{gpu.name} does not support MIG",
            "use time_slicing or mps, or a GPU with MIG, for example A100-40GB",
        )
    known = [profile.name for profile in geometry.profiles]
    if isinstance(layout, str):
        profile = layout.removeprefix("all-")
        if not layout.startswith("all-") or profile not in known:
            shorthands = [f"all-{name}" for name in known]
            raise InputError(
                "sharing.layout", f"unknown layout {layout!r} for {gpu.name}", listing(shorthands, layout)
            )
        return
    if not layout:
        raise InputError(
            "sharing.layout", "no slice is given", "give {profile: number}, or use kind: exclusive"
        )
    for name in layout:
        if name not in known:
            raise InputError(
                f"sharing.layout.{name}", f"{gpu.name} has no such profile", listing(known, name)
            )
    reason = geometry.refusal(layout)
    if reason:
        raise InputError(
            "sharing.layout",
            f"{reason}, so {gpu.name} does not hold it",
            "take slices out, or see which layouts fit with `gpuform gpus`",
        )
