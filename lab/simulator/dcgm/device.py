"""The model of one GPU: metric values from its load and its faults.

- Power rises with the load from idle power to the limit; energy is its integral. Between two scrapes the
  power counts as the mean of its values at both.
- The temperature follows the power with a time constant of half a minute.
- Counters begin at 0 at the GPU's first scrape, and again when the driver restarts. Otherwise they never
  fall, except the volatile memory errors, which end with the fault: its remedy is a reset.
- ``thermal``: 96 C, half the clock, throttled all the time. ``power``: half the power limit, 0.7 of the
  clock. ``nvlink``: ten errors of each kind a second. ``ecc``: a double-bit error a minute, each with its XID
  48 and a row remapped (before Ampere: a page retired).

Not modelled: the effect of throttling on the load, corrected errors, the fan, and heat from neighbours. Idle
power and temperatures are in no data sheet: they are assumptions, the same for every model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lab.simulator import faults
from lab.simulator.faults import Fault
from lab.simulator.hardware import Gpu

IDLE_SHARE = 0.125  # Power of an idle GPU as a share of its limit: an A100's 50 of 400 W
COOL, HOT, THROTTLED = 30.0, 75.0, 96.0
"""Temperature (C) at no power, at the power limit, and with failed cooling."""
LAG = 30.0  # Time constant (s) with which the temperature follows the power
IDLE_MHZ = 210
RESERVED_SHARE = 0.015
"""Memory that the driver keeps for itself, as a share of the GPU's: an A100 40GB keeps about 600 MiB."""
LINK_ERRORS = 10.0
"""Errors per second with fault ``nvlink``."""
NEVER = -math.inf
PROFILING = {
    "GR_ENGINE_ACTIVE": 1.0,
    "SM_ACTIVE": 0.85,
    "SM_OCCUPANCY": 0.45,
    "PIPE_TENSOR_ACTIVE": 0.4,
    "DRAM_ACTIVE": 0.5,
    "PIPE_FP64_ACTIVE": 0.02,
    "PIPE_FP32_ACTIVE": 0.25,
    "PIPE_FP16_ACTIVE": 0.1,
}
"""Shares of the load, as a training run in half precision might have them."""

FaultsByKind = dict[str, Fault]
"""Faults of one GPU: the first of each kind."""


@dataclass(slots=True)
class State:
    """A GPU between two scrapes; ``at`` is the last scrape, ``began`` the driver's start.

    ``events`` are XIDs (times in seconds since 1970), which the exporter rather than the driver keeps.
    """

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
    events: set[tuple[float, int]] = field(default_factory=set)
    last: tuple[float, int] = (0.0, 0)

    def after_restart(self, now: float) -> State:
        """State after a restart of the driver: keeps only what the GPU itself stores."""
        double_bits_before = self.double_bit_before + self.double_bit
        return State(
            now,
            now,
            0.0,
            self.celsius,
            double_bit_before=double_bits_before,
            events=self.events,
            last=self.last,
        )


def advance(state: State, gpu: Gpu, busy: float, link: float, by_kind: FaultsByKind, moment: float) -> None:
    """Advance ``state`` to ``moment``, never back; ``link`` is the used share of the NVLinks."""
    now, first = max(moment, state.at), state.watts == 0.0
    idle = gpu.limit_w * IDLE_SHARE
    watts = idle + (gpu.limit_w - idle) * busy
    if faults.POWER in by_kind:
        watts = min(watts, gpu.limit_w / 2)
    target = THROTTLED if faults.THERMAL in by_kind else COOL + (HOT - COOL) * watts / gpu.limit_w
    seconds = 0.0 if first or state.at == NEVER else now - state.at
    state.millijoules += seconds * 500.0 * (state.watts + watts)
    state.link_bytes += seconds * link * gpu.nvlink
    state.celsius = target + (state.celsius - target) * math.exp(-seconds / LAG)
    if first and not state.celsius:
        state.celsius = target
    begun = max(state.at, state.began)
    active_s = {kind: max(0.0, now - max(begun, fault.since)) for kind, fault in by_kind.items()}
    state.thermal_ns += 1e9 * active_s.get(faults.THERMAL, 0.0)
    state.power_ns += 1e9 * active_s.get(faults.POWER, 0.0)
    state.link_errors += LINK_ERRORS * active_s.get(faults.NVLINK, 0.0)
    if fault := by_kind.get(faults.ECC):
        state.double_bit = max(state.double_bit, len(double_bits(max(fault.since, state.began), now)))
    else:
        state.double_bit_before, state.double_bit = state.double_bit_before + state.double_bit, 0
    state.watts, state.at = watts, now


def double_bits(since: float, now: float) -> range:
    """The double-bit errors until now: their seconds after ``since``."""
    return range(0, int(now - since) + 1, int(faults.DOUBLE_BIT_INTERVAL_S)) if now >= since else range(0)


def gpu_values(state: State, gpu: Gpu, busy: float, by_kind: FaultsByKind) -> dict[str, float]:
    """Values of the GPU as a whole by field, without ``DCGM_FI_DEV_``; each MIG instance repeats them."""
    ever, errors = state.double_bit + state.double_bit_before, int(state.link_errors)
    slow = 0.5 if faults.THERMAL in by_kind else 0.7 if faults.POWER in by_kind else 1.0
    values: dict[str, float] = {
        "SM_CLOCK": IDLE_MHZ if busy < 0.01 else round(gpu.sm_mhz * slow),
        "MEM_CLOCK": gpu.memory_mhz,
        "GPU_TEMP": round(state.celsius),
        "POWER_USAGE": state.watts,
        "TOTAL_ENERGY_CONSUMPTION": int(state.millijoules),
        "PCIE_REPLAY_COUNTER": 0,
        "VGPU_LICENSE_STATUS": 0,
        "POWER_VIOLATION": int(state.power_ns),
        "THERMAL_VIOLATION": int(state.thermal_ns),
        "ECC_SBE_VOL_TOTAL": 0,
        "ECC_DBE_VOL_TOTAL": state.double_bit,
        "ECC_SBE_AGG_TOTAL": 0,
        "ECC_DBE_AGG_TOTAL": ever,
    }
    values |= {f"{word}_VIOLATION": 0 for word in ("SYNC_BOOST", "BOARD_LIMIT", "LOW_UTIL", "RELIABILITY")}
    if gpu.hbm:
        values["MEMORY_TEMP"] = round(state.celsius) + 5
    if gpu.nvlink:
        kinds = ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
        values |= {f"NVLINK_{kind}_ERROR_COUNT_TOTAL": errors for kind in kinds}
        values["NVLINK_BANDWIDTH_L0"] = int(state.link_bytes) // 12
        values["NVLINK_BANDWIDTH_TOTAL"] = int(state.link_bytes)
    if gpu.compute >= (8, 0):
        values |= {"UNCORRECTABLE_REMAPPED_ROWS": ever, "CORRECTABLE_REMAPPED_ROWS": 0}
        values["ROW_REMAP_FAILURE"] = int(faults.ROW_REMAP in by_kind)
    else:
        values |= {"RETIRED_SBE": 0, "RETIRED_DBE": ever, "RETIRED_PENDING": int(state.double_bit > 0)}
    return {f"DCGM_FI_DEV_{name}": number for name, number in values.items()}


def device_values(busy: float, total_mib: int, held_mib: int, instance: bool) -> dict[str, float]:
    """Values of a GPU or of a MIG instance by its load and memory (MiB); an instance has no ``_UTIL``.

    Used, free and reserved memory add up to the total.
    """
    used = min(held_mib, total_mib)
    reserved = min(round(total_mib * RESERVED_SHARE), total_mib - used)
    values: dict[str, float] = {f"DCGM_FI_PROF_{name}": busy * share for name, share in PROFILING.items()}
    values |= {
        "DCGM_FI_DEV_FB_USED": used,
        "DCGM_FI_DEV_FB_RESERVED": reserved,
        "DCGM_FI_DEV_FB_FREE": total_mib - used - reserved,
    }
    if instance:
        return values
    return values | {
        "DCGM_FI_DEV_GPU_UTIL": round(100 * busy),
        "DCGM_FI_DEV_MEM_COPY_UTIL": round(60 * busy),
        "DCGM_FI_DEV_ENC_UTIL": 0,
        "DCGM_FI_DEV_DEC_UTIL": 0,
        "DCGM_FI_PROF_PCIE_TX_BYTES": round(1.2e9 * busy),
        "DCGM_FI_PROF_PCIE_RX_BYTES": round(3.0e9 * busy),
    }
