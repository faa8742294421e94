"""Power limit, clocks and NVLink bandwidth of each GPU model, by PCI device id.

The figures come from NVIDIA's data sheets and product briefs; the A10G has none, so its figures are what
``nvidia-smi`` shows on EC2's g5. The clocks of the RTX PRO 4500 Server Edition are not published: that of the
multiprocessors is the 6000's, that of the memory follows from its bandwidth. Idle power and temperatures are
in no data sheet: they are assumptions, the same share of the limit and the same degrees for every model.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.simulator.hardware import Gpu

IDLE_SHARE = 0.125
"""Power of an idle GPU as a share of its limit: an A100's 50 of 400 W."""
COOL, HOT, THROTTLED = 30.0, 75.0, 96.0
"""Temperature (C) at no power, at the power limit, and with failed cooling."""
LAG = 30.0
"""Time constant (s) with which the temperature follows the power."""
IDLE_MHZ = 210
RESERVED_SHARE = 0.015
"""Memory that the driver keeps for itself, as a share of the GPU's: an A100 40GB keeps about 600 MiB."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Power limit (W), highest clocks of multiprocessors and memory (MHz), NVLink (bytes/s, both ways)."""

    limit_w: int
    sm_mhz: int
    memory_mhz: int
    nvlink: float = 0.0
    hbm: bool = False

    @property
    def idle_w(self) -> float:
        return self.limit_w * IDLE_SHARE


GB = 1e9
FIGURES: dict[str, Figures] = {
    "1db1": Figures(300, 1530, 877, 300 * GB, hbm=True),
    "1db5": Figures(300, 1530, 877, 300 * GB, hbm=True),
    "1db4": Figures(250, 1380, 877, hbm=True),
    "1df6": Figures(250, 1597, 1107, hbm=True),
    "1eb8": Figures(70, 1590, 5001),
    "1eb4": Figures(70, 1590, 5001),
    "2236": Figures(150, 1695, 6251),
    "2235": Figures(300, 1740, 7251),
    "2237": Figures(300, 1710, 6251),
    "27b8": Figures(72, 2040, 6251),
    "26b5": Figures(300, 2490, 9001),
    "26b9": Figures(350, 2520, 9001),
    "20b7": Figures(165, 1440, 1215, hbm=True),
    "20b0": Figures(400, 1410, 1215, 600 * GB, hbm=True),
    "20f1": Figures(250, 1410, 1215, hbm=True),
    "20b2": Figures(400, 1410, 1593, 600 * GB, hbm=True),
    "20b5": Figures(300, 1410, 1512, hbm=True),
    "2330": Figures(700, 1980, 2619, 900 * GB, hbm=True),
    "2331": Figures(350, 1755, 1593, hbm=True),
    "2321": Figures(400, 1785, 2619, hbm=True),
    "2342": Figures(900, 1980, 2619, hbm=True),
    "2335": Figures(700, 1980, 3201, 900 * GB, hbm=True),
    "2901": Figures(1000, 1965, 3996, 1800 * GB, hbm=True),
    "2941": Figures(1200, 2062, 3996, 1800 * GB, hbm=True),
    "3182": Figures(1100, 2032, 3996, 1800 * GB, hbm=True),
    "2c3a": Figures(165, 2430, 12501),
    "2bb5": Figures(600, 2430, 12481),
}
"""PCIe cards with an optional NVLink bridge count as without NVLink."""


def of(device: str, gpu: Gpu) -> Figures:
    """The model's figures; assumptions for a declared model that the table lacks."""
    return FIGURES.get(device) or Figures(300, 1500, 5000, 600 * GB if gpu.linked else 0.0)
