from __future__ import annotations

from functools import cache

from infra.model.gpu.mig import Geometry
from infra.model.gpu.models import GPUS

GEOMETRIES = {gpu.name: gpu.geometry for gpu in GPUS.values() if gpu.geometry}


@cache
def layouts(geometry: Geometry) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Every layout that an empty GPU holds, except the empty one, as sorted (profile, count) pairs."""
    found: list[tuple[tuple[str, int], ...]] = []

    def extend(index: int, chosen: dict[str, int]) -> None:
        if index == len(geometry.profiles):
            if chosen:
                found.append(tuple(sorted(chosen.items())))
            return
        name = geometry.profiles[index].name
        count = 0
        while geometry.fits(chosen | ({name: count} if count else {})):
            extend(index + 1, chosen | ({name: count} if count else {}))
            count += 1

    extend(0, {})
    return tuple(sorted(found))
