"""Fields of NVIDIA's DCGM that can be exported, each with its Prometheus type and help text.

The names are those of dcgm-exporter 4.x's own lists, and of DCGM 4.6 (go-dcgm 1.4611.0, const_fields.go);
the help texts are ours. A field that a GPU does not have is left out by the exporter, for that GPU alone:
NVLink on a card without it, memory temperature on GDDR, profiling (``DCGM_FI_PROF_``) before Volta. A field
that DCGM does not know ends the exporter on every node, so a field that is not in this table is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

MetricType = Literal["gauge", "counter", "label"]


@dataclass(frozen=True)
class DcgmField:
    """How a field is exported: its type, and its help, without commas (it is a column of a CSV file)."""

    type: MetricType
    help: str


def _fields(kind: MetricType, /, **help_texts: str) -> dict[str, DcgmField]:
    return {name: DcgmField(kind, text) for name, text in help_texts.items()}


_gauges, _counters = partial(_fields, "gauge"), partial(_fields, "counter")
_labels = partial(_fields, "label")
CLOCKS = _gauges(
    DCGM_FI_DEV_SM_CLOCK="Clock of the streaming multiprocessors in MHz",
    DCGM_FI_DEV_MEM_CLOCK="Clock of the memory in MHz",
)
TEMPERATURE = _gauges(
    DCGM_FI_DEV_GPU_TEMP="Temperature of the GPU in degrees Celsius",
    DCGM_FI_DEV_MEMORY_TEMP="Temperature of the memory in degrees Celsius",
)
POWER = _gauges(
    DCGM_FI_DEV_POWER_USAGE="Power drawn in watts",
    DCGM_FI_DEV_ENFORCED_POWER_LIMIT="Enforced power limit in watts",
) | _counters(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION="Energy used since the driver was loaded in millijoules")
PCIE = _counters(DCGM_FI_DEV_PCIE_REPLAY_COUNTER="Packets that PCIe retransmitted") | _gauges(
    DCGM_FI_PROF_PCIE_TX_BYTES="Bytes sent over PCIe per second with headers",
    DCGM_FI_PROF_PCIE_RX_BYTES="Bytes received over PCIe per second with headers",
)
UTILISATION = _gauges(
    DCGM_FI_DEV_GPU_UTIL="Percent of time in which a kernel ran; for the whole card only",
    DCGM_FI_DEV_MEM_COPY_UTIL="Percent of time in which memory was read or written",
    DCGM_FI_DEV_ENC_UTIL="Percent of time in which the video encoder worked",
    DCGM_FI_DEV_DEC_UTIL="Percent of time in which the video decoder worked",
    DCGM_FI_PROF_GR_ENGINE_ACTIVE="Share of time in which the compute engine was busy; of a slice too",
    DCGM_FI_PROF_SM_ACTIVE="Share of cycles in which a multiprocessor had a warp",
    DCGM_FI_PROF_SM_OCCUPANCY="Share of the warps that could be resident and were",
    DCGM_FI_PROF_DRAM_ACTIVE="Share of cycles in which the memory interface moved data",
)
PIPES = _gauges(
    DCGM_FI_PROF_PIPE_TENSOR_ACTIVE="Share of cycles in which the tensor pipe worked",
    DCGM_FI_PROF_PIPE_FP64_ACTIVE="Share of cycles in which the FP64 pipe worked",
    DCGM_FI_PROF_PIPE_FP32_ACTIVE="Share of cycles in which the FP32 pipe worked",
    DCGM_FI_PROF_PIPE_FP16_ACTIVE="Share of cycles in which the FP16 pipe worked",
)
MEMORY = _gauges(
    DCGM_FI_DEV_FB_FREE="Memory that is free in MiB",
    DCGM_FI_DEV_FB_USED="Memory in use in MiB",
    DCGM_FI_DEV_FB_RESERVED="Memory that the driver keeps for itself in MiB",
)
XIDS = _gauges(
    DCGM_FI_DEV_XID_ERRORS="Number of the last XID; stays after the fault is over",
    DCGM_EXP_XID_ERRORS_COUNT="XIDs of the last minutes by number; falls back to nothing",
)
THROTTLING = _counters(
    DCGM_FI_DEV_POWER_VIOLATION="Time with lower clocks due to the power limit in ns",
    DCGM_FI_DEV_THERMAL_VIOLATION="Time with lower clocks due to temperature in ns",
) | _gauges(DCGM_EXP_CLOCK_EVENTS_COUNT="Reasons of lower clocks in the last minutes by reason")
ECC = _counters(
    DCGM_FI_DEV_ECC_SBE_VOL_TOTAL="Single-bit errors since the driver was loaded; corrected",
    DCGM_FI_DEV_ECC_DBE_VOL_TOTAL="Double-bit errors since the driver was loaded; data was lost",
)
RETIRED = _gauges(DCGM_FI_DEV_RETIRED_PENDING="Pages that a reboot will retire")
REMAPPED = _counters(
    DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS="Rows replaced after uncorrectable errors; Ampere and later",
    DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS="Rows replaced after correctable errors; Ampere and later",
) | _gauges(DCGM_FI_DEV_ROW_REMAP_FAILURE="1 when a row could not be replaced; the card has no spare left")
NVLINK = _counters(
    DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL="Checksum errors of NVLink flow control on all links",
    DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL="Checksum errors of NVLink data on all links",
    DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL="Packets that NVLink retransmitted on all links",
    DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL="Times an NVLink had to be brought up again",
    DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL="Data sent over all NVLinks as DCGM counts it",
)
NVLINK_RATES = _gauges(
    DCGM_FI_PROF_NVLINK_TX_BYTES="Bytes sent over NVLink per second with headers",
    DCGM_FI_PROF_NVLINK_RX_BYTES="Bytes received over NVLink per second with headers",
)
LICENCE = _gauges(DCGM_FI_DEV_VGPU_LICENSE_STATUS="State of the vGPU licence; nothing without vGPU")
LABELS = _labels(DCGM_FI_DRIVER_VERSION="Version of the driver")

DEFAULT: Mapping[str, DcgmField] = {
    **(CLOCKS | TEMPERATURE | POWER | PCIE | UTILISATION | PIPES | MEMORY | XIDS | THROTTLING | ECC),
    **(RETIRED | REMAPPED | NVLINK | NVLINK_RATES | LICENCE | LABELS),
}
"""Fields that are exported by default, in the order of the CSV file: dcgm-exporter's own, and those that our
rules, dashboards or commands read, or that teams list most (tests/sources). A field that stays unread costs a
series for each MIG instance."""

OTHERS: Mapping[str, DcgmField] = {
    **_gauges(
        DCGM_FI_DEV_FB_TOTAL="Memory of the card in MiB",
        DCGM_FI_DEV_FB_USED_PERCENT="Share of the memory in use from 0 to 1",
        DCGM_FI_DEV_BAR1_FREE="Free BAR1 memory in MiB",
        DCGM_FI_DEV_BAR1_TOTAL="BAR1 memory of the card in MiB",
        DCGM_FI_DEV_BAR1_USED="BAR1 memory in use in MiB",
        DCGM_FI_DEV_VIDEO_CLOCK="Clock of the video engines in MHz",
        DCGM_FI_DEV_CLOCK_THROTTLE_REASONS="Reasons of lower clocks as a bit mask",
        DCGM_FI_DEV_PSTATE="Performance state from 0 (fastest) to 15",
        DCGM_FI_DEV_FAN_SPEED="Percent of the fan's full speed",
        DCGM_FI_DEV_SLOWDOWN_TEMP="Temperature at which clocks are lowered in degrees Celsius",
        DCGM_FI_DEV_SHUTDOWN_TEMP="Temperature at which the GPU switches off in degrees Celsius",
        DCGM_FI_DEV_GPU_MAX_OP_TEMP="Highest operating temperature in degrees Celsius",
        DCGM_FI_DEV_MEM_MAX_OP_TEMP="Highest operating temperature of the memory in degrees Celsius",
        DCGM_FI_DEV_POWER_MGMT_LIMIT="Power limit that is set in watts",
        DCGM_FI_DEV_POWER_USAGE_INSTANT="Power drawn at this moment in watts",
        DCGM_FI_DEV_PCIE_LINK_GEN="Generation of the PCIe link",
        DCGM_FI_DEV_PCIE_LINK_WIDTH="Lanes of the PCIe link",
        DCGM_FI_DEV_PCIE_MAX_LINK_GEN="Highest generation of the PCIe link",
        DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH="Most lanes of the PCIe link",
        DCGM_FI_DEV_ECC_CURRENT="1 if ECC is on",
        DCGM_FI_DEV_ECC_PENDING="1 if ECC is on after the next reboot",
        DCGM_FI_DEV_ROW_REMAP_PENDING="1 while the replacement of a row waits for a reset",
        DCGM_FI_DEV_PERSISTENCE_MODE="1 if the driver stays loaded",
        DCGM_FI_DEV_MIG_MODE="1 if MIG mode is enabled",
        DCGM_FI_DEV_COMPUTE_MODE="Compute mode: how many processes may use the GPU",
        DCGM_FI_DEV_FABRIC_MANAGER_STATUS="State of the fabric manager",
        DCGM_FI_PROF_PIPE_INT_ACTIVE="Share of cycles in which the integer pipe worked",
        DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE="Share of cycles of integer work on the tensor pipe",
        DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE="Share of cycles of FP16 work on the tensor pipe",
        DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE="Share of cycles of FP64 work on the tensor pipe",
        DCGM_EXP_GPU_HEALTH_STATUS="Result of DCGM's own health checks",
        DCGM_EXP_P2P_STATUS="Whether the GPU reaches others over NVLink",
    ),
    **_counters(
        DCGM_FI_DEV_SYNC_BOOST_VIOLATION="Time with lower clocks due to sync boost with other GPUs in ns",
        DCGM_FI_DEV_BOARD_LIMIT_VIOLATION="Time with lower clocks due to a limit of the board in ns",
        DCGM_FI_DEV_LOW_UTIL_VIOLATION="Time with lower clocks due to low utilization in ns",
        DCGM_FI_DEV_RELIABILITY_VIOLATION="Time with lower clocks due to the voltage limit in ns",
        DCGM_FI_DEV_ECC_SBE_AGG_TOTAL="Single-bit errors over the life of the GPU",
        DCGM_FI_DEV_ECC_DBE_AGG_TOTAL="Double-bit errors over the life of the GPU",
        DCGM_FI_DEV_RETIRED_SBE="Pages retired for single-bit errors; before Ampere",
        DCGM_FI_DEV_RETIRED_DBE="Pages retired for double-bit errors; before Ampere",
        DCGM_FI_DEV_PCIE_TX_THROUGHPUT="Data sent over PCIe as NVML counts it in KB",
        DCGM_FI_DEV_PCIE_RX_THROUGHPUT="Data received over PCIe as NVML counts it in KB",
        DCGM_FI_DEV_NVLINK_BANDWIDTH_L0="Data sent over the first NVLink",
        DCGM_FI_DEV_TOTAL_APP_CLOCKS_VIOLATION="Time below the application clocks in ns",
        DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION="Time below the base clocks in ns",
    ),
    **_labels(
        DCGM_FI_NVML_VERSION="Version of NVML",
        DCGM_FI_CUDA_DRIVER_VERSION="CUDA version of the driver",
        DCGM_FI_DEV_BRAND="Brand of the card",
        DCGM_FI_DEV_SERIAL="Serial number of the card",
        DCGM_FI_DEV_VBIOS_VERSION="Version of the card's BIOS",
        DCGM_FI_DEV_INFOROM_IMAGE_VER="Version of the card's inforom",
        DCGM_FI_DEV_OEM_INFOROM_VER="Version of the manufacturer's inforom",
        DCGM_FI_DEV_ECC_INFOROM_VER="Version of the inforom's part on ECC",
        DCGM_FI_DEV_POWER_INFOROM_VER="Version of the inforom's part on power",
    ),
}
"""Fields that ``monitoring.counters`` may add by name."""

FIELDS: Mapping[str, DcgmField] = {**DEFAULT, **OTHERS}
