"""XIDs: the driver's error numbers, and those that the device plugin ignores.

Numbers and names follow NVIDIA's list of XID errors (docs.nvidia.com/deploy/xid-errors). XIDs of displays and
of units of old GPUs are left out, so that a mistyped number is noticed.
"""

from __future__ import annotations

NAMES: dict[int, str] = {
    8: "GPU stopped processing",
    11: "Invalid or corrupted push buffer stream",
    13: "Graphics Engine Exception",
    25: "Invalid or illegal push buffer stream",
    31: "GPU memory page fault",
    32: "Invalid or corrupted push buffer stream",
    37: "Driver firmware error",
    38: "Driver firmware error",
    39: "Unused",
    40: "Unused",
    41: "Unused",
    43: "GPU stopped processing",
    44: "Graphics Engine fault during context switch",
    45: "Preemptive cleanup, due to previous errors -- Most likely to see when running multiple cuda",
    46: "GPU stopped processing",
    48: "Double Bit ECC Error",
    54: "Auxiliary power is not connected to the GPU board",
    57: "Error programming video memory interface",
    58: "Unstable video memory interface detected",
    60: "Video processor exception",
    61: "Internal micro-controller breakpoint/warning",
    62: "Internal micro-controller halt",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    66: "Illegal access by driver",
    67: "Illegal access by driver",
    68: "NVDEC0 Exception",
    69: "Graphics Engine class error",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    92: "High single-bit ECC error rate",
    93: "Non-fatal violation of provisioned InfoROM wear limit",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    106: "SMBPBI Test Message",
    107: "SMBPBI Test Message Silent",
    109: "Context Switch Timeout Error",
    110: "Security Fault Error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
    121: "C2C Link Error",
    122: "SPI PMU RPC Read Failure",
    123: "SPI PMU RPC Write Failure",
    125: "Inforom FS Failure",
    126: "Robust Channel CE10 Error",
    136: "ALI Training Fail",
    137: "NVLink Privilege Error",
    139: "Robust Channel OFA1 Error",
    140: "Unrecovered ECC Error",
    141: "Robust Channel Fast Path Error",
    142: "Robust Channel NVENVC3 Error",
    143: "GPU Initialization Failure",
    144: "NVLINK: Saw Error",
    145: "NVLINK: RLW Error",
    146: "NVLINK: TLW Error",
    147: "NVLINK: TREX Error",
    148: "NVLINK: NVLPW_CTRL Error",
    149: "NVLINK: NETIR Error",
    150: "NVLINK: MSE Error",
    151: "Robust Channel Key rotation Error",
    154: "GPU Recovery Action Changed",
    155: "NVLINK: SW Defined Error",
    156: "Resource Retirement Event",
    157: "Resource Retirement Failure",
    158: "GPU Fatal Timeout",
    160: "Channel Retirement Event",
    161: "Channel Retirement Failure",
    167: "PCIE Fatal Timeout",
    171: "Uncorrectable DRAM Error",
    172: "Uncorrectable SRAM Error",
}

SKIPPED = frozenset({13, 31, 43, 45, 68, 109})
"""Application errors: NVIDIA's device plugin 0.20 keeps the GPU healthy (internal/rm/health.go)."""

DOUBLE_BIT, FALLEN_OFF = 48, 79


def name(xid: int) -> str:
    """Text of dcgm-exporter's label ``err_msg``."""
    return NAMES.get(xid, "Unknown Error") if xid else "No Error"
