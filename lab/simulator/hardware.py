"""The simulator's own hardware table, keyed by PCI device id.

Typed by hand from NVIDIA's product pages, its MIG user guide and mig-parted's shipped table of device ids. It
is not the planner's on purpose: tests notice two tables that disagree, but not one shared table that is
wrong. Product names are what NVML reports; memory is NVML's total in MiB.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile: its slices, the memory slices it may start at, MiB and multiprocessors (0: unknown).

    At most one instance per GPU has the ``media`` engines (``+me``).
    """

    compute: int
    memory_slices: int
    starts: tuple[int, ...]
    memory_mib: int = 0
    multiprocessors: int = 0
    media: bool = False


@dataclass(frozen=True, slots=True)
class Mig:
    """MIG geometry of a GPU: all memory and compute slices, and the profiles."""

    slices: int
    compute: int
    profiles: dict[str, Profile]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model; ``last_branch`` is the last driver branch that supports it (None: still supported)."""

    product: str
    memory_mib: int
    compute: tuple[int, int]
    family: str
    mig: Mig | None = None
    last_branch: int | None = None
    linked: bool = False
    """Whether a declared model has NVLink; ``dcgm.figures`` has that of the others."""


def _eight(names: str, mib: tuple[int, ...] = (0,) * 6, multiprocessors: tuple[int, ...] = (0,) * 6) -> Mig:
    """Geometry of A100, Hopper, B200, GB200 and B300: 8 memory slices, 7 compute slices.

    Profiles and figures come in the order of the shapes; the first profile also exists with media engines.
    """
    shapes = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))
    starts = (tuple(range(7)), (0, 2, 4, 6), (0, 2, 4), (0, 4), (0,), (0,))
    every = zip(names.split(), shapes, starts, mib, multiprocessors, strict=True)
    profiles = {name: Profile(*shape, places, size, sms) for name, shape, places, size, sms in every}
    first = names.split()[0]
    profiles[f"{first}+me"] = replace(profiles[first], media=True)
    return Mig(8, 7, profiles)


# Memory and multiprocessors: go-nvml's mock of a DGX A100, and what NVML reports on an H100 and an H200.
_A100_40 = _eight(
    "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
    (4864, 9856, 9856, 19968, 19968, 40192),
    (14, 14, 28, 42, 56, 98),
)
_HOPPER_SMS = (16, 26, 32, 60, 64, 132)
_80_NAMES = "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"
_80 = _eight(_80_NAMES)
_H100 = _eight(_80_NAMES, (9984, 20096, 20096, 40448, 40448, 81152), _HOPPER_SMS)
_H200 = _eight(
    "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
    (16384, 33280, 33280, 71424, 71424, 143360),
    _HOPPER_SMS,
)
_H100_NVL = _eight("1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb")
_GH200 = _eight("1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb")
_GB200 = _eight("1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb")
_B300 = _eight("1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb")
_B200 = _eight("1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb")
_A30 = Mig(
    4,
    4,
    {
        "1g.6gb": Profile(1, 1, (0, 1, 2, 3), multiprocessors=14),
        "1g.6gb+me": Profile(1, 1, (0, 1, 2, 3), multiprocessors=14, media=True),
        "2g.12gb": Profile(2, 2, (0, 2), multiprocessors=28),
        "2g.12gb+me": Profile(2, 2, (0, 2), multiprocessors=28, media=True),
        "4g.24gb": Profile(4, 4, (0,), multiprocessors=56),
    },
)
_RTX_PRO_6000 = Mig(
    4,
    4,
    {
        **{f"1g.24gb{kind}": Profile(1, 1, (0, 1, 2, 3)) for kind in ("", "+gfx", "-me")},
        "1g.24gb+me.all": Profile(1, 1, (0, 1, 2, 3), media=True),
        **{f"2g.48gb{kind}": Profile(2, 2, (0, 2)) for kind in ("", "+gfx", "-me")},
        "2g.48gb+me.all": Profile(2, 2, (0, 2), media=True),
        **{f"4g.96gb{kind}": Profile(4, 4, (0,)) for kind in ("", "+gfx")},
    },
)

_RTX_PRO_4500 = Mig(2, 2, {"1g.16gb": Profile(1, 1, (0, 1)), "2g.32gb": Profile(2, 2, (0,))})

GPUS: dict[str, Gpu] = {
    "1db1": Gpu("Tesla V100-SXM2-16GB", 16384, (7, 0), "volta", last_branch=580),
    "1db5": Gpu("Tesla V100-SXM2-32GB", 32768, (7, 0), "volta", last_branch=580),
    "1db4": Gpu("Tesla V100-PCIE-16GB", 16384, (7, 0), "volta", last_branch=580),
    "1df6": Gpu("Tesla V100S-PCIE-32GB", 32768, (7, 0), "volta", last_branch=580),
    "1eb8": Gpu("Tesla T4", 15360, (7, 5), "turing"),
    "1eb4": Gpu("NVIDIA T4G", 15360, (7, 5), "turing"),
    "2236": Gpu("NVIDIA A10", 23028, (8, 6), "ampere"),
    "2235": Gpu("NVIDIA A40", 46068, (8, 6), "ampere"),
    "2237": Gpu("NVIDIA A10G", 23028, (8, 6), "ampere"),
    "27b8": Gpu("NVIDIA L4", 23034, (8, 9), "ada-lovelace"),
    "26b5": Gpu("NVIDIA L40", 46068, (8, 9), "ada-lovelace"),
    "26b9": Gpu("NVIDIA L40S", 46068, (8, 9), "ada-lovelace"),
    "20b7": Gpu("NVIDIA A30", 24576, (8, 0), "ampere", _A30),
    "20b0": Gpu("NVIDIA A100-SXM4-40GB", 40960, (8, 0), "ampere", _A100_40),
    "20f1": Gpu("NVIDIA A100-PCIE-40GB", 40960, (8, 0), "ampere", _A100_40),
    "20b2": Gpu("NVIDIA A100-SXM4-80GB", 81920, (8, 0), "ampere", _80),
    "20b5": Gpu("NVIDIA A100 80GB PCIe", 81920, (8, 0), "ampere", _80),
    "2330": Gpu("NVIDIA H100 80GB HBM3", 81559, (9, 0), "hopper", _H100),
    "2331": Gpu("NVIDIA H100 PCIe", 81559, (9, 0), "hopper", _80),
    "2321": Gpu("NVIDIA H100 NVL", 95830, (9, 0), "hopper", _H100_NVL),
    "2342": Gpu("NVIDIA GH200 480GB", 97871, (9, 0), "hopper", _GH200),
    "2335": Gpu("NVIDIA H200", 143771, (9, 0), "hopper", _H200),
    "2901": Gpu("NVIDIA B200", 183359, (10, 0), "blackwell", _B200),
    "2941": Gpu("NVIDIA GB200", 189471, (10, 0), "blackwell", _GB200),
    "3182": Gpu("NVIDIA B300 SXM6 AC", 275040, (10, 3), "blackwell", _B300),
    "2c3a": Gpu("NVIDIA RTX PRO 4500 Blackwell Server Edition", 32623, (12, 0), "blackwell", _RTX_PRO_4500),
    "2bb5": Gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, (12, 0), "blackwell", _RTX_PRO_6000),
}


@cache
def described(text: str) -> Gpu:
    """A declared model, from the JSON in its node's annotation."""
    said = json.loads(text)
    major, minor = said["compute"]
    cut, mig = said["mig"], None
    if cut:
        profiles = {
            name: Profile(
                one["compute"], one["memory"], tuple(one["starts"]), one["memory_mib"], media=one["media"]
            )
            for name, one in cut["profiles"].items()
        }
        mig = Mig(cut["memory"], cut["compute"], profiles)
    return Gpu(
        said["product"],
        said["memory_mib"],
        (major, minor),
        said["family"],
        mig,
        said["last_branch"],
        said["linked"],
    )


def device_filter(device: str) -> str:
    """The device as mig-parted's ``device-filter`` spells it: device id, then vendor, upper case."""
    return f"0x{device.upper()}10DE"
