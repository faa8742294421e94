"""MIG geometry: which slices a GPU can be cut into, and where each may lie.

A GPU in MIG mode has compute slices and memory slices. A profile takes some of both and may start only at
certain memory slices, so a layout can be within both totals and have no places that do not overlap, or have
places and exceed a total: the message says which. Sources: NVIDIA's MIG user guide as noted in the project's
facts (placements of the A100, profile names of H100 94 GB, GH200, H200 and B200) and the configuration file
that NVIDIA ships with mig-parted 0.15.0 (profiles and largest counts per PCI device id). The profiles of the
RTX PRO 4500, which that file lacks, are those of NVIDIA AI Enterprise's table of MIG-backed vGPU types. Start
slices of the RTX PRO cards are derived from their counts (4, 2, 1 on four slices; 2, 1 on two), because no
published list was available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Layout = Mapping[str, int]
Placement = tuple[str, int]  # profile name, first memory slice


@dataclass(frozen=True)
class Profile:
    """One kind of slice: compute slices, memory slices, and the memory slices it may start at."""

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]
    media: bool = False
    """Takes the GPU's media engines, which only one instance at a time can have (``+me``)."""
    memory_mib: int = 0
    """Memory that NVML reports for the slice; 0 if it has not been read."""


@dataclass(frozen=True)
class Geometry:
    """Compute and memory slices of one GPU model, and its profiles, smallest first."""

    compute: int
    memory: int
    profiles: tuple[Profile, ...]

    def profile(self, name: str) -> Profile | None:
        return next((profile for profile in self.profiles if profile.name == name), None)

    def max_slices(self, name: str) -> int:
        """How many slices of one profile an empty GPU holds; 0 for an unknown profile."""
        count = 0
        while self.refusal({name: count + 1}) is None:
            count += 1
        return count

    def fits(self, layout: Layout) -> bool:
        """Whether an empty GPU holds the layout."""
        return self.refusal(layout) is None

    def refusal(self, layout: Layout) -> str | None:
        """Why an empty GPU does not hold the layout, in one clause; None if it does."""
        known = {profile.name: profile for profile in self.profiles}
        unknown = [name for name in layout if name not in known]
        if unknown:
            return f"{unknown[0]} is not a profile of this GPU"
        media = sum(count for name, count in layout.items() if known[name].media)
        if media > 1:
            return f"{media} slices request the media engines, and only one slice can have them"
        compute = sum(known[name].compute * count for name, count in layout.items())
        if compute > self.compute:
            return f"{format_layout(layout)} takes {compute} compute slices of {self.compute}"
        memory = sum(known[name].memory * count for name, count in layout.items())
        if memory > self.memory:
            return (
                f"{format_layout(layout)} takes {compute} of {self.compute} compute slices"
                f" but {memory} memory slices of {self.memory}"
            )
        if self.placements(layout) is None:
            return f"{format_layout(layout)} fits in size, but its slices cannot be placed without overlap"
        return None

    def placements(self, layout: Layout, taken: tuple[Placement, ...] = ()) -> tuple[Placement, ...] | None:
        """Placement of each slice beside live instances (``taken``), which stay; None if they do not fit.

        Compute slices and media engines count too. The result lists only the new slices, largest first.
        """
        known = {profile.name: profile for profile in self.profiles}
        used = frozenset(cell for name, start in taken for cell in range(start, start + known[name].memory))
        pending = [known[name] for name, count in layout.items() for _ in range(count)]
        pending.sort(key=lambda profile: (-profile.memory, -profile.compute, profile.name))
        all_slices = [*pending, *(known[name] for name, _ in taken)]
        compute, media = sum(item.compute for item in all_slices), sum(item.media for item in all_slices)
        if compute > self.compute or media > 1:
            return None
        return _place(tuple(pending), used, 0)


def _place(
    pending: tuple[Profile, ...], taken: frozenset[int], at_least: int
) -> tuple[Placement, ...] | None:
    """Depth-first search; equal slices are placed in ascending order, so that no set is tried twice."""
    if not pending:
        return ()
    profile, remaining = pending[0], pending[1:]
    for start in profile.starts:
        cells = frozenset(range(start, start + profile.memory))
        if start < at_least or cells & taken:
            continue
        next_start = start + 1 if remaining and remaining[0] == profile else 0
        placed = _place(remaining, taken | cells, next_start)
        if placed is not None:
            return ((profile.name, start), *placed)
    return None


def is_plain(profile: Profile) -> bool:
    """Whether it is a profile for computing only: no media engines, no graphics."""
    return not {*"+-"} & {*profile.name}


def format_layout(layout: Layout) -> str:
    """A layout in words, as in ``2 x 3g.20gb + 1 x 1g.5gb``."""
    return " + ".join(f"{count} x {name}" for name, count in layout.items())


def _seven_slices(names: str, mib: Sequence[int] = (0, 0, 0, 0)) -> Geometry:
    """The geometry of every GPU with 7 compute and 8 memory slices.

    ``names``: the profiles 1g, 1g with two memory slices, 2g, 3g, 4g and 7g; ``mib``: NVML's memory of one,
    two, four and eight memory slices.
    """
    g1, g1_wide, g2, g3, g4, g7 = names.split()
    single, double, half, full = mib
    return Geometry(
        compute=7,
        memory=8,
        profiles=(
            Profile(g1, 1, 1, (0, 1, 2, 3, 4, 5, 6), memory_mib=single),
            Profile(f"{g1}+me", 1, 1, (0, 1, 2, 3, 4, 5, 6), media=True, memory_mib=single),
            Profile(g1_wide, 1, 2, (0, 2, 4, 6), memory_mib=double),
            Profile(g2, 2, 2, (0, 2, 4), memory_mib=double),
            Profile(g3, 3, 4, (0, 4), memory_mib=half),
            Profile(g4, 4, 4, (0,), memory_mib=half),
            Profile(g7, 7, 8, (0,), memory_mib=full),
        ),
    )


# Memory: go-nvml's mock of a DGX A100; read by NVML from an H100 80GB HBM3 and an H200 (driver 580.159.04).
_PROFILES_80GB = "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"
_ONE, _TWO, _FOUR = (0, 1, 2, 3), (0, 2), (0,)

A30 = Geometry(
    compute=4,
    memory=4,
    profiles=(
        Profile("1g.6gb", 1, 1, _ONE),
        Profile("1g.6gb+me", 1, 1, _ONE, media=True),
        Profile("2g.12gb", 2, 2, _TWO),
        Profile("2g.12gb+me", 2, 2, _TWO, media=True),
        Profile("4g.24gb", 4, 4, _FOUR),
    ),
)
A100_40 = _seven_slices("1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", (4864, 9856, 19968, 40192))
A100_80 = H100_PCIE = _seven_slices(_PROFILES_80GB)
H100 = _seven_slices(_PROFILES_80GB, (9984, 20096, 40448, 81152))
H100_NVL = _seven_slices("1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb")
GH200 = _seven_slices("1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb")
H200 = _seven_slices("1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", (16384, 33280, 71424, 143360))
B200 = _seven_slices("1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb")
GB200 = _seven_slices("1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb")
B300 = _seven_slices("1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb")
RTX_PRO_4500 = Geometry(
    compute=2, memory=2, profiles=(Profile("1g.16gb", 1, 1, (0, 1)), Profile("2g.32gb", 2, 2, (0,)))
)
RTX_PRO_6000 = Geometry(
    compute=4,
    memory=4,
    profiles=(
        Profile("1g.24gb", 1, 1, _ONE),
        Profile("1g.24gb-me", 1, 1, _ONE),
        Profile("1g.24gb+gfx", 1, 1, _ONE),
        Profile("1g.24gb+me.all", 1, 1, _ONE, media=True),
        Profile("2g.48gb", 2, 2, _TWO),
        Profile("2g.48gb-me", 2, 2, _TWO),
        Profile("2g.48gb+gfx", 2, 2, _TWO),
        Profile("2g.48gb+me.all", 2, 2, _TWO, media=True),
        Profile("4g.96gb", 4, 4, _FOUR),
        Profile("4g.96gb+gfx", 4, 4, _FOUR),
    ),
)
