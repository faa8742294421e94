"""Where MIG instances fit on one GPU: a search over the driver's placements.

A layout within the compute slices may still not fit: 2 x 3g.20gb + 1g.5gb asks for 7 of 7 compute slices, but
the two 3g take all eight memory slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from lab.simulator.hardware import Mig

Placed = tuple[str, int]
"""A profile and the memory slice it starts at."""


class DoesNotFit(ValueError):
    """The layout names a profile that this GPU does not have, or cannot be placed."""


def place(mig: Mig, layout: Mapping[str, int]) -> tuple[Placed, ...]:
    """Placements for every instance of ``layout`` on an empty GPU, ordered by start.

    Raises DoesNotFit with the reason.
    """
    for name in layout:
        if name not in mig.profiles:
            raise DoesNotFit(f"this GPU has no profile {name}; it has {', '.join(mig.profiles)}")
    wanted = [name for name, count in layout.items() for _ in range(count)]
    layout_text = " + ".join(f"{count}x {name}" for name, count in sorted(layout.items()))
    media = [name for name in wanted if mig.profiles[name].media]
    if len(media) > 1:
        raise DoesNotFit(f"at most one instance can have the media engines, {len(media)} request them")
    if sum(mig.profiles[name].compute for name in wanted) > mig.compute:
        raise DoesNotFit(f"{layout_text} needs more than {mig.compute} compute slices")
    wanted.sort(key=lambda name: (-mig.profiles[name].memory_slices, len(mig.profiles[name].starts), name))
    placements = _search(mig, wanted, set())
    if placements is None:
        raise DoesNotFit(f"{layout_text} does not fit into the placements of {mig.slices} memory slices")
    return tuple(sorted(placements, key=lambda placed: placed[1]))


def _search(mig: Mig, wanted: list[str], taken: set[int]) -> list[Placed] | None:
    if not wanted:
        return []
    name, *remaining = wanted
    for start in mig.profiles[name].starts:
        slices = set(range(start, start + mig.profiles[name].memory_slices))
        if not slices & taken and (placements := _search(mig, remaining, taken | slices)) is not None:
            return [(name, start), *placements]
    return None


def max_instances(mig: Mig, name: str) -> int:
    for count in range(len(mig.profiles[name].starts), 0, -1):
        with suppress(DoesNotFit):
            return len(place(mig, {name: count}))
    return 0


def count_profiles(placed: tuple[Placed, ...]) -> Counter[str]:
    return Counter(name for name, _ in placed)
