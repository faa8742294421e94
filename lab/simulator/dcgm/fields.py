"""The DCGM fields of dcgm-exporter's own counter files, and how each is written.

A counters' csv may name these, and those in ``NOT_PLAYED``: DCGM knows them, but the files do not name them,
so they are accepted and have no series here. Any other field makes the simulated exporter crash, although the
real one might accept it. The model (``device``) decides whether a GPU or a MIG instance has a value for a
field; a field without a value has no series, as with the real exporter.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counter:
    """A line of a counters' csv: field, Prometheus type (``label``: it becomes a label), help text."""

    name: str
    kind: str
    text: str


XID, XID_COUNT = "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT"
CLOCK_EVENTS, HEALTH = "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_GPU_HEALTH_STATUS"
P2P = "DCGM_EXP_P2P_STATUS"
EXPORTER = frozenset({XID_COUNT, CLOCK_EVENTS, HEALTH, P2P})
"""Metrics that the exporter computes itself; ``P2P``, the status between pairs of GPUs, has no series."""
DRIVER_VERSION = "DCGM_FI_DRIVER_VERSION"

_DEFAULT = """
DCGM_FI_DEV_SM_CLOCK gauge Clock of the multiprocessors (MHz).
DCGM_FI_DEV_MEM_CLOCK gauge Clock of the memory (MHz).
DCGM_FI_DEV_MEMORY_TEMP gauge Temperature of the memory (C).
DCGM_FI_DEV_GPU_TEMP gauge Temperature of the GPU (C).
DCGM_FI_DEV_POWER_USAGE gauge Power that the GPU draws (W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter Energy since the driver was loaded (mJ).
DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter Retries on PCIe.
DCGM_FI_DEV_GPU_UTIL gauge Share of the time in which a kernel ran (%).
DCGM_FI_DEV_MEM_COPY_UTIL gauge Share of the time in which memory was read or written (%).
DCGM_FI_DEV_ENC_UTIL gauge Use of the encoder (%).
DCGM_FI_DEV_DEC_UTIL gauge Use of the decoder (%).
DCGM_FI_DEV_XID_ERRORS gauge The last XID.
DCGM_FI_DEV_FB_FREE gauge Memory that is free (MiB).
DCGM_FI_DEV_FB_USED gauge Memory that is used (MiB).
DCGM_FI_DEV_FB_RESERVED gauge Memory that the driver keeps (MiB).
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter Bytes over all NVLinks.
DCGM_FI_DEV_VGPU_LICENSE_STATUS gauge Whether a vGPU licence is present.
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS counter Rows remapped for uncorrectable errors.
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS counter Rows remapped for correctable errors.
DCGM_FI_DEV_ROW_REMAP_FAILURE gauge Whether a row could not be remapped.
DCGM_FI_DRIVER_VERSION label Version of the driver.
DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge Share of the time in which the graphics engine was active.
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge Share of the cycles in which the tensor pipe was active.
DCGM_FI_PROF_DRAM_ACTIVE gauge Share of the cycles in which the memory's interface was active.
DCGM_FI_PROF_PCIE_TX_BYTES gauge Bytes per second sent over PCIe.
DCGM_FI_PROF_PCIE_RX_BYTES gauge Bytes per second received over PCIe.
"""

_ON_REQUEST = """
DCGM_FI_DEV_POWER_VIOLATION DCGM_FI_DEV_THERMAL_VIOLATION DCGM_FI_DEV_SYNC_BOOST_VIOLATION
DCGM_FI_DEV_BOARD_LIMIT_VIOLATION DCGM_FI_DEV_LOW_UTIL_VIOLATION DCGM_FI_DEV_RELIABILITY_VIOLATION
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL DCGM_FI_DEV_ECC_DBE_VOL_TOTAL DCGM_FI_DEV_ECC_SBE_AGG_TOTAL
DCGM_FI_DEV_ECC_DBE_AGG_TOTAL DCGM_FI_DEV_RETIRED_SBE DCGM_FI_DEV_RETIRED_DBE DCGM_FI_DEV_RETIRED_PENDING
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
DCGM_FI_DEV_NVLINK_BANDWIDTH_L0
DCGM_FI_NVML_VERSION DCGM_FI_DEV_BRAND DCGM_FI_DEV_SERIAL DCGM_FI_DEV_OEM_INFOROM_VER
DCGM_FI_DEV_ECC_INFOROM_VER DCGM_FI_DEV_POWER_INFOROM_VER DCGM_FI_DEV_INFOROM_IMAGE_VER
DCGM_FI_DEV_VBIOS_VERSION
DCGM_FI_PROF_SM_ACTIVE DCGM_FI_PROF_SM_OCCUPANCY DCGM_FI_PROF_PIPE_FP64_ACTIVE
DCGM_FI_PROF_PIPE_FP32_ACTIVE DCGM_FI_PROF_PIPE_FP16_ACTIVE
"""

_NOT_PLAYED = """
DCGM_FI_PROF_NVLINK_TX_BYTES DCGM_FI_PROF_NVLINK_RX_BYTES DCGM_FI_DEV_FB_TOTAL DCGM_FI_DEV_FB_USED_PERCENT
DCGM_FI_DEV_BAR1_FREE DCGM_FI_DEV_BAR1_TOTAL DCGM_FI_DEV_BAR1_USED DCGM_FI_DEV_VIDEO_CLOCK
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS DCGM_FI_DEV_PSTATE DCGM_FI_DEV_FAN_SPEED DCGM_FI_DEV_SLOWDOWN_TEMP
DCGM_FI_DEV_SHUTDOWN_TEMP DCGM_FI_DEV_GPU_MAX_OP_TEMP DCGM_FI_DEV_MEM_MAX_OP_TEMP
DCGM_FI_DEV_POWER_MGMT_LIMIT DCGM_FI_DEV_ENFORCED_POWER_LIMIT DCGM_FI_DEV_POWER_USAGE_INSTANT
DCGM_FI_DEV_PCIE_LINK_GEN DCGM_FI_DEV_PCIE_LINK_WIDTH DCGM_FI_DEV_PCIE_MAX_LINK_GEN
DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH DCGM_FI_DEV_ECC_CURRENT DCGM_FI_DEV_ECC_PENDING
DCGM_FI_DEV_ROW_REMAP_PENDING DCGM_FI_DEV_PERSISTENCE_MODE DCGM_FI_DEV_MIG_MODE DCGM_FI_DEV_COMPUTE_MODE
DCGM_FI_DEV_FABRIC_MANAGER_STATUS DCGM_FI_PROF_PIPE_INT_ACTIVE DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE
DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE DCGM_FI_DEV_PCIE_TX_THROUGHPUT
DCGM_FI_DEV_PCIE_RX_THROUGHPUT DCGM_FI_DEV_TOTAL_APP_CLOCKS_VIOLATION
DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION DCGM_FI_CUDA_DRIVER_VERSION
"""

DEFAULT: tuple[Counter, ...] = tuple(Counter(*line.split(" ", 2)) for line in _DEFAULT.strip().splitlines())
"""Counters of an exporter pod without a mounted csv."""
KNOWN = frozenset({*(counter.name for counter in DEFAULT), *_ON_REQUEST.split(), *EXPORTER})
NOT_PLAYED = frozenset(_NOT_PLAYED.split())
