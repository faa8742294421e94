"""dcgm-exporter as an operand: the counters that its pod asks for, and why it crash-loops.

A counters' csv may name the fields of dcgm-exporter's own counter files, and those in ``NOT_SIMULATED``: DCGM
knows them, but the files do not name them, so they are accepted and have no series here. Any other field
makes the simulated exporter crash, although the real one might accept it. The csv is read as dcgm-exporter
does it: three columns, ``#`` comments, all else ends the exporter. A field that DCGM refuses only at run time
(the GPU does not have it) is no error; it has no series.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from lab.simulator import driver, faults
from lab.simulator.objects import Pod
from lab.simulator.world import BrokenConfig, World

OPERAND = "dcgm-exporter"
NO_DRIVER = "Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND: no driver on this node"
DOWN = "Failed to initialize DCGM: the hostengine has stopped (injected fault: exporter-down)"
KEYS = ("dcgm-metrics.csv", "metrics")
"""Key of the ConfigMap: the operator's, and that of dcgm-exporter's own chart."""
TYPES = ("gauge", "counter", "histogram", "summary", "label")

ConfigMaps = Mapping[tuple[str, str], dict[str, str]]


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

_NOT_SIMULATED = """
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
NOT_SIMULATED = frozenset(_NOT_SIMULATED.split())


class CountersError(ValueError):
    """The exporter ends with this message."""


@lru_cache(maxsize=32)
def read(text: str) -> tuple[Counter, ...]:
    """The counters that a csv asks for, in its order; raises CountersError in the exporter's own words."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    counters: dict[str, Counter] = {}
    for number, record in enumerate(csv.reader(lines, skipinitialspace=True)):
        fields = [field.strip(" ") for field in record]
        if len(fields) != 3:
            raise CountersError(
                f"malformed CSV record; err: failed to parse line {number} (`[{' '.join(fields)}]`), "
                "expected 3 fields"
            )
        counters.setdefault(fields[0], _counter(*fields))
    if not counters:
        raise CountersError("malformed configmap contents; err: no metrics found")
    return tuple(counter for name, counter in counters.items() if name not in NOT_SIMULATED)


def _counter(name: str, kind: str, text: str) -> Counter:
    if name not in KNOWN | NOT_SIMULATED:
        raise CountersError(f"could not find DCGM field; err: unknown ExporterCounter field '{name}'")
    if name not in EXPORTER and kind not in TYPES:
        raise CountersError(f"could not find Prometheus metric type '{kind}'")
    return Counter(name, kind, text)


def requested_counters(pod: Pod, maps: ConfigMaps) -> tuple[Counter, ...]:
    """Counters that an exporter's pod serves; raises CountersError if the exporter would exit.

    An edited ConfigMap takes effect at once; on a real node it takes a minute and a reload of the exporter.
    """
    if not pod.template.config_map:
        return DEFAULT
    data = maps.get((pod.namespace, pod.template.config_map))
    if data is None:
        raise CountersError(f'configmap "{pod.template.config_map}" not found')
    key = next((key for key in KEYS if key in data), None)
    if key is None:
        raise CountersError(f"Could not read metrics file '{KEYS[0]}'; err: no such file or directory")
    return read(data[key])


def config_error(pod: Pod, maps: ConfigMaps) -> BrokenConfig | None:
    """Error in the pod's counters, or None. Mounted files stay when their ConfigMap is deleted."""
    is_mounted = not pod.template.config_map or (pod.namespace, pod.template.config_map) in maps
    if not is_mounted and pod.start == "granted":
        return None
    try:
        requested_counters(pod, maps)
    except CountersError as error:
        return BrokenConfig(str(error), mount=not is_mounted)
    return None


def exit_message(world: World, pod: Pod) -> str | None:
    config = world.configs.get(pod.uid)
    if isinstance(config, BrokenConfig):
        return config.message
    if pod.start != "granted" and driver.version(world) is None:
        return NO_DRIVER
    return DOWN if faults.has_fault(world.node, faults.EXPORTER_DOWN) else None
