"""The model of one GPU: metric values from its load and its faults.

- Power rises with the load from idle power to the limit; energy is its integral. Between two scrapes the
  power counts as the mean of its values at both.
- The temperature follows the power with a time constant of half a minute.
- Counters begin at 0 at the GPU's first scrape, and again when the driver restarts. Otherwise they never
  fall, except the volatile memory errors, which end with the fault: its remedy is a reset.
- ``thermal``: 96 C, half the clock, throttled all the time. ``power``: half the power limit, 0.7 of the
  clock. ``nvlink``: ten errors of each kind a second. ``ecc``: a double-bit error a minute, each with its XID
  48 and a row remapped (before Ampere: a page retired).

Not modelled: the effect of throttling on the load, corrected errors, the fan, and heat from neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lab.simulator import faults
from lab.simulator.dcgm import figures
from lab.simulator.dcgm.figures import Figures
from lab.simulator.faults import Fault

LINK_ERRORS = 10.0
"""Errors per second with fault ``nvlink``."""
NEVER = -math.inf

Broken = dict[str, Fault]
"""Faults of one GPU: the first of each kind."""


@dataclass(slots=True)
class State:
    """A GPU's state between two scrapes; ``at`` is the last scrape, ``began`` the driver's start."""

    began: float = NEVER
    at: float = NEVER
    watts: float = 0.0
    celsius: float = 0.0
    millijoules: float = 0.0
    link_bytes: float = 0.0
    link_errors: float = 0.0
    power_ns: float = 0.0
    thermal_ns: float = 0.0
    double_bit: int = 0
    double_bit_before: int = 0

    def again(self, now: float) -> State:
        """State after a restart of the driver: keeps only what the GPU itself stores."""
        kept = self.double_bit_before + self.double_bit
        return State(began=now, at=now, celsius=self.celsius, double_bit_before=kept)


def advance(state: State, made: Figures, busy: float, link: float, broken: Broken, moment: float) -> None:
    """Advance ``state`` to ``moment``, never back; ``link`` is the used share of the NVLinks."""
    now = max(moment, state.at)
    first = state.watts == 0.0
    watts = _watts(made, busy, broken)
    target = _target(made, watts, broken)
    seconds = 0.0 if first or state.at == NEVER else now - state.at
    state.millijoules += seconds * 500.0 * (state.watts + watts)
    state.link_bytes += seconds * link * made.nvlink
    state.celsius = target + (state.celsius - target) * math.exp(-seconds / figures.LAG)
    if first and not state.celsius:
        state.celsius = target
    state.thermal_ns += 1e9 * _within(broken, faults.THERMAL, state, now)
    state.power_ns += 1e9 * _within(broken, faults.POWER, state, now)
    state.link_errors += LINK_ERRORS * _within(broken, faults.NVLINK, state, now)
    _errors(state, broken, now)
    state.watts, state.at = watts, now


def _watts(made: Figures, busy: float, broken: Broken) -> float:
    watts = made.idle_w + (made.limit_w - made.idle_w) * busy
    return min(watts, made.limit_w / 2) if faults.POWER in broken else watts


def _target(made: Figures, watts: float, broken: Broken) -> float:
    if faults.THERMAL in broken:
        return figures.THROTTLED
    return figures.COOL + (figures.HOT - figures.COOL) * watts / made.limit_w


def _within(broken: Broken, kind: str, state: State, now: float) -> float:
    """Seconds since the last scrape with this fault."""
    fault = broken.get(kind)
    return max(0.0, now - max(state.at, state.began, fault.since)) if fault else 0.0


def _errors(state: State, broken: Broken, now: float) -> None:
    fault = broken.get(faults.ECC)
    if fault is None:
        state.double_bit_before += state.double_bit
        state.double_bit = 0
    else:
        begun = max(fault.since, state.began)
        state.double_bit = max(state.double_bit, _steps(begun, now))


def _steps(since: float, now: float) -> int:
    return int((now - since) // faults.AGAIN_AFTER) + 1 if now >= since else 0


def double_bits(since: float, now: float) -> list[float]:
    """Times of the last ten double-bit errors."""
    count, step = _steps(since, now), faults.AGAIN_AFTER
    return [since + step * n for n in range(max(0, count - 10), count)]


def clock_mhz(made: Figures, busy: float, broken: Broken) -> int:
    """Clock of the multiprocessors: the maximum under any load, less when throttled."""
    if busy < 0.01:
        return figures.IDLE_MHZ
    slow = 0.5 if faults.THERMAL in broken else 0.7 if faults.POWER in broken else 1.0
    return round(made.sm_mhz * slow)


def whole(state: State, made: Figures, busy: float, broken: Broken, ampere: bool) -> dict[str, float]:
    """Values of the GPU as a whole; each of its MIG instances repeats them."""
    errors, ever = state.double_bit, state.double_bit + state.double_bit_before
    found: dict[str, float] = {
        "DCGM_FI_DEV_SM_CLOCK": clock_mhz(made, busy, broken),
        "DCGM_FI_DEV_MEM_CLOCK": made.memory_mhz,
        "DCGM_FI_DEV_GPU_TEMP": round(state.celsius),
        "DCGM_FI_DEV_POWER_USAGE": state.watts,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": int(state.millijoules),
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS": 0,
        "DCGM_FI_DEV_POWER_VIOLATION": int(state.power_ns),
        "DCGM_FI_DEV_THERMAL_VIOLATION": int(state.thermal_ns),
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 0,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": errors,
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": 0,
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": ever,
    }
    for word in ("SYNC_BOOST", "BOARD_LIMIT", "LOW_UTIL", "RELIABILITY"):
        found[f"DCGM_FI_DEV_{word}_VIOLATION"] = 0
    if made.hbm:
        found["DCGM_FI_DEV_MEMORY_TEMP"] = round(state.celsius) + 5
    if made.nvlink:
        found |= _links(state)
    return found | (_rows(ever, broken) if ampere else _pages(ever, errors))


def _links(state: State) -> dict[str, float]:
    total, errors = int(state.link_bytes), int(state.link_errors)
    kinds = ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
    found: dict[str, float] = {f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL": errors for kind in kinds}
    first = {"DCGM_FI_DEV_NVLINK_BANDWIDTH_L0": total // 12}
    return found | first | {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": total}


def _rows(ever: int, broken: Broken) -> dict[str, float]:
    return {
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ever,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": int(faults.ROW_REMAP in broken),
    }


def _pages(ever: int, errors: int) -> dict[str, float]:
    return {
        "DCGM_FI_DEV_RETIRED_SBE": 0,
        "DCGM_FI_DEV_RETIRED_DBE": ever,
        "DCGM_FI_DEV_RETIRED_PENDING": int(errors > 0),
    }


def busy_values(busy: float, instance: bool) -> dict[str, float]:
    """Values of a GPU or of a MIG instance that follow from its load; an instance has no ``_UTIL``.

    The pipes are fixed shares of the load, as a training run in half precision might have them.
    """
    shares = {
        "GR_ENGINE_ACTIVE": 1.0,
        "SM_ACTIVE": 0.85,
        "SM_OCCUPANCY": 0.45,
        "PIPE_TENSOR_ACTIVE": 0.4,
        "DRAM_ACTIVE": 0.5,
        "PIPE_FP64_ACTIVE": 0.02,
        "PIPE_FP32_ACTIVE": 0.25,
        "PIPE_FP16_ACTIVE": 0.1,
    }
    found: dict[str, float] = {f"DCGM_FI_PROF_{name}": busy * share for name, share in shares.items()}
    if instance:
        return found
    return found | {
        "DCGM_FI_DEV_GPU_UTIL": round(100 * busy),
        "DCGM_FI_DEV_MEM_COPY_UTIL": round(60 * busy),
        "DCGM_FI_DEV_ENC_UTIL": 0,
        "DCGM_FI_DEV_DEC_UTIL": 0,
        "DCGM_FI_PROF_PCIE_TX_BYTES": round(1.2e9 * busy),
        "DCGM_FI_PROF_PCIE_RX_BYTES": round(3.0e9 * busy),
    }


def memory_values(total_mib: int, held: int) -> dict[str, float]:
    """Memory in MiB; used, free and reserved add up to the total."""
    used = min(held, total_mib)
    kept = min(round(total_mib * figures.RESERVED_SHARE), total_mib - used)
    return {
        "DCGM_FI_DEV_FB_USED": used,
        "DCGM_FI_DEV_FB_RESERVED": kept,
        "DCGM_FI_DEV_FB_FREE": total_mib - used - kept,
    }
