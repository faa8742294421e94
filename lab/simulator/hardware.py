"""The simulator's own hardware table, keyed by PCI device id.

Typed by hand from NVIDIA's product pages, its MIG user guide and mig-parted's shipped table of device ids. It
is not the planner's on purpose: tests notice two tables that disagree, but not one shared table that is
wrong. Product names are what NVML reports; memory is NVML's total in MiB. Power, clocks and NVLink are from
data sheets and product briefs; the A10G has none: its figures are what ``nvidia-smi`` shows on EC2's g5. The
clocks of the RTX PRO 4500 Server Edition are not published: that of the multiprocessors is the 6000's, that
of the memory follows from its bandwidth.
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
    """One GPU model; ``last_branch`` is the last driver branch that supports it (None: still supported).

    Power limit (W), highest clocks of multiprocessors and memory (MHz), NVLink (bytes/s, both ways); the
    defaults are assumptions for declared models.
    """

    product: str
    memory_mib: int
    compute: tuple[int, int]
    family: str
    mig: Mig | None = None
    last_branch: int | None = None
    limit_w: int = 300
    sm_mhz: int = 1500
    memory_mhz: int = 5000
    nvlink: float = 0.0
    hbm: bool = False


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
_HOPPER_SMS = (16, 26, 32, 60, 64, 132)
_80 = "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"
_A30 = {
    **{f"1g.6gb{me}": Profile(1, 1, (0, 1, 2, 3), 0, 14, bool(me)) for me in ("", "+me")},
    **{f"2g.12gb{me}": Profile(2, 2, (0, 2), 0, 28, bool(me)) for me in ("", "+me")},
    "4g.24gb": Profile(4, 4, (0,), 0, 56),
}
_RTX_PRO_6000 = {
    **{f"1g.24gb{kind}": Profile(1, 1, (0, 1, 2, 3)) for kind in ("", "+gfx", "-me")},
    "1g.24gb+me.all": Profile(1, 1, (0, 1, 2, 3), media=True),
    **{f"2g.48gb{kind}": Profile(2, 2, (0, 2)) for kind in ("", "+gfx", "-me")},
    "2g.48gb+me.all": Profile(2, 2, (0, 2), media=True),
    **{f"4g.96gb{kind}": Profile(4, 4, (0,)) for kind in ("", "+gfx")},
}
_MIG = {
    "A100": _eight(
        "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
        (4864, 9856, 9856, 19968, 19968, 40192),
        (14, 14, 28, 42, 56, 98),
    ),
    "80": _eight(_80),
    "H100": _eight(_80, (9984, 20096, 20096, 40448, 40448, 81152), _HOPPER_SMS),
    "H200": _eight(
        "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
        (16384, 33280, 33280, 71424, 71424, 143360),
        _HOPPER_SMS,
    ),
    "NVL": _eight("1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),
    "GH200": _eight("1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb"),
    "GB200": _eight("1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"),
    "B300": _eight("1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb"),
    "B200": _eight("1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
    "A30": Mig(4, 4, _A30),
    "6000": Mig(4, 4, _RTX_PRO_6000),
    "4500": Mig(2, 2, {"1g.16gb": Profile(1, 1, (0, 1)), "2g.32gb": Profile(2, 2, (0,))}),
}

# PCI device, MiB, compute capability, family, last driver branch; power limit (W), clocks of multiprocessors
# and memory (MHz), NVLink (GB/s; PCIe cards with an optional bridge: 0); memory, MIG geometry, product.
_TABLE = """
1db1  16384  7.0 volta        580  300 1530   877  300 hbm  -     Tesla V100-SXM2-16GB
1db5  32768  7.0 volta        580  300 1530   877  300 hbm  -     Tesla V100-SXM2-32GB
1db4  16384  7.0 volta        580  250 1380   877    0 hbm  -     Tesla V100-PCIE-16GB
1df6  32768  7.0 volta        580  250 1597  1107    0 hbm  -     Tesla V100S-PCIE-32GB
1eb8  15360  7.5 turing       -     70 1590  5001    0 gddr -     Tesla T4
1eb4  15360  7.5 turing       -     70 1590  5001    0 gddr -     NVIDIA T4G
2236  23028  8.6 ampere       -    150 1695  6251    0 gddr -     NVIDIA A10
2235  46068  8.6 ampere       -    300 1740  7251    0 gddr -     NVIDIA A40
2237  23028  8.6 ampere       -    300 1710  6251    0 gddr -     NVIDIA A10G
27b8  23034  8.9 ada-lovelace -     72 2040  6251    0 gddr -     NVIDIA L4
26b5  46068  8.9 ada-lovelace -    300 2490  9001    0 gddr -     NVIDIA L40
26b9  46068  8.9 ada-lovelace -    350 2520  9001    0 gddr -     NVIDIA L40S
20b7  24576  8.0 ampere       -    165 1440  1215    0 hbm  A30   NVIDIA A30
20b0  40960  8.0 ampere       -    400 1410  1215  600 hbm  A100  NVIDIA A100-SXM4-40GB
20f1  40960  8.0 ampere       -    250 1410  1215    0 hbm  A100  NVIDIA A100-PCIE-40GB
20b2  81920  8.0 ampere       -    400 1410  1593  600 hbm  80    NVIDIA A100-SXM4-80GB
20b5  81920  8.0 ampere       -    300 1410  1512    0 hbm  80    NVIDIA A100 80GB PCIe
2330  81559  9.0 hopper       -    700 1980  2619  900 hbm  H100  NVIDIA H100 80GB HBM3
2331  81559  9.0 hopper       -    350 1755  1593    0 hbm  80    NVIDIA H100 PCIe
2321  95830  9.0 hopper       -    400 1785  2619    0 hbm  NVL   NVIDIA H100 NVL
2342  97871  9.0 hopper       -    900 1980  2619    0 hbm  GH200 NVIDIA GH200 480GB
2335 143771  9.0 hopper       -    700 1980  3201  900 hbm  H200  NVIDIA H200
2901 183359 10.0 blackwell    -   1000 1965  3996 1800 hbm  B200  NVIDIA B200
2941 189471 10.0 blackwell    -   1200 2062  3996 1800 hbm  GB200 NVIDIA GB200
3182 275040 10.3 blackwell    -   1100 2032  3996 1800 hbm  B300  NVIDIA B300 SXM6 AC
2c3a  32623 12.0 blackwell    -    165 2430 12501    0 gddr 4500  NVIDIA RTX PRO 4500 Blackwell Server Edition
2bb5  97887 12.0 blackwell    -    600 2430 12481    0 gddr 6000  NVIDIA RTX PRO 6000 Blackwell Server Edition
"""


def _parsed(row: str) -> tuple[str, Gpu]:
    device, mib, compute, family, last, watts, sm, memory, link, kind, mig, product = row.split(maxsplit=11)
    major, minor = map(int, compute.split("."))
    branch, nvlink = None if last == "-" else int(last), int(link) * 1e9
    power = (int(watts), int(sm), int(memory), nvlink, kind == "hbm")
    return device, Gpu(product, int(mib), (major, minor), family, _MIG.get(mig), branch, *power)


GPUS = dict(_parsed(row) for row in _TABLE.strip().splitlines())


@cache
def parse_model(text: str) -> Gpu:
    """A declared model, from the JSON in its node's annotation."""
    declared = json.loads(text)
    major, minor = declared["compute"]
    cut, mig = declared["mig"], None
    if cut:
        profiles = {
            name: Profile(p["compute"], p["memory"], tuple(p["starts"]), p["memory_mib"], media=p["media"])
            for name, p in cut["profiles"].items()
        }
        mig = Mig(cut["memory"], cut["compute"], profiles)
    return Gpu(
        declared["product"],
        declared["memory_mib"],
        (major, minor),
        declared["family"],
        mig,
        declared["last_branch"],
        nvlink=600e9 if declared["linked"] else 0.0,
    )


def device_filter(device: str) -> str:
    """The device as mig-parted's ``device-filter`` spells it: device id, then vendor, upper case."""
    return f"0x{device.upper()}10DE"
