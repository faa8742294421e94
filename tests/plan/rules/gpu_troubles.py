"""GPU faults, each with the alert that must follow."""

from __future__ import annotations

from typing import Any

from tests.plan.rules import world
from tests.plan.rules.promtool import selector
from tests.plan.rules.provoked import Row, during, fault, gpu, growing, only_during
from tests.plan.rules.world import TURNS, TURNS_1, WHOLE, WHOLE_1

_LINKS = "DCGM_FI_DEV_NVLINK_{}_ERROR_COUNT_TOTAL"


def counted(node: world.Node, number: int, values: str, index: int = 0) -> dict[str, str]:
    labels = {**node.gpu(index), "xid": number, "window_size_in_ms": 300000}
    return {selector("DCGM_EXP_XID_ERRORS_COUNT", **labels): values}


def shown(node: world.Node, field: str, values: str, index: int = 0, **more: Any) -> dict[str, str]:
    return {selector(field, **node.gpu(index), **more): values}


_CLASSES = (
    ("GpuXidReplace", "critical", "replace", 79),
    ("GpuXidReset", "critical", "reset", 48),
    ("GpuXidApplication", "info", "application", 31),
    ("GpuXidApplication", "info", "application", 94),
    ("GpuXidInformational", "info", "informational", 63),
)
ROWS = (
    *(
        Row(
            alert=name,
            severity=severity,
            series=counted(TURNS, number, only_during()),
            labels=[fault(TURNS, kind, "xid", xid=number)],
        )
        for name, severity, kind, number in _CLASSES
    ),
    Row(
        alert="GpuXidUnknown",
        severity="warning",
        series=counted(TURNS, 999, only_during()),
        labels=[fault(TURNS, "informational", "xid_unknown", xid=999)],
    ),
    Row(
        alert="GpuEccUncorrectable",
        severity="critical",
        series=shown(WHOLE, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", growing(1)),
        labels=[fault(WHOLE, "reset", "ecc")],
    ),
    Row(  # on the GPU with XID 94, which is the alert of the application alone
        alert="GpuEccUncorrectable",
        severity="critical",
        series=shown(TURNS, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", growing(1)),
        labels=[],
    ),
    Row(
        alert="GpuRowRemapFailed",
        severity="critical",
        series=shown(WHOLE, "DCGM_FI_DEV_ROW_REMAP_FAILURE", during("1"), index=2),
        labels=[fault(WHOLE, "replace", "row_remap", index=2)],
    ),
    Row(
        alert="GpuRowRemapPending",
        severity="warning",
        series=shown(WHOLE, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", during("4", "3")),
        labels=[gpu(WHOLE)],
    ),
    Row(  # by the flag, where it is exported
        alert="GpuRowRemapPending",
        severity="warning",
        series=shown(WHOLE, "DCGM_FI_DEV_ROW_REMAP_PENDING", during("1"), index=1),
        labels=[gpu(WHOLE, 1)],
    ),
    Row(  # a page, before Ampere
        alert="GpuRowRemapPending",
        severity="warning",
        series=shown(TURNS, "DCGM_FI_DEV_RETIRED_PENDING", during("1")),
        labels=[gpu(TURNS)],
    ),
    Row(
        alert="GpuRowsRemappedMany",
        severity="warning",
        series=shown(WHOLE, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "_x10 257x35 stale", index=2),
        labels=[gpu(WHOLE, 2)],
    ),
    Row(
        alert="GpuTemperatureHigh",
        severity="warning",
        wait=10,
        series=shown(TURNS, "DCGM_FI_DEV_GPU_TEMP", during("90", "60")),
        labels=[gpu(TURNS, modelName="Tesla T4")],
    ),
    Row(
        alert="GpuThermalThrottling",
        severity="warning",
        wait=10,
        series=shown(TURNS, "DCGM_FI_DEV_THERMAL_VIOLATION", growing(30_000_000_000)),
        labels=[gpu(TURNS)],
    ),
    Row(  # by clock events, where the counter is not exported
        alert="GpuThermalThrottling",
        severity="warning",
        wait=10,
        series=shown(TURNS_1, "DCGM_FI_DEV_THERMAL_VIOLATION", "_")
        | shown(TURNS_1, "DCGM_EXP_CLOCK_EVENTS_COUNT", during("3"), clock_event="sw_thermal")
        | shown(TURNS_1, "DCGM_EXP_CLOCK_EVENTS_COUNT", "3x300", clock_event="gpu_idle"),
        labels=[gpu(TURNS_1)],
    ),
    Row(
        alert="GpuPowerThrottling",
        severity="info",
        wait=30,
        series=shown(TURNS, "DCGM_FI_DEV_POWER_VIOLATION", growing(200_000_000_000)),
        labels=[gpu(TURNS)],
    ),
    *(
        Row(
            alert="GpuNvlinkErrors",
            severity="warning",
            series=shown(WHOLE, _LINKS.format(kind), growing(each), index=index),
            labels=[gpu(WHOLE, index)],
        )
        for index, (kind, each) in enumerate((("RECOVERY", 1), ("REPLAY", 500), ("CRC_DATA", 500)))
    ),
    Row(
        alert="GpuFabricManagerFailed",
        severity="critical",
        wait=5,
        series=shown(WHOLE_1, "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", during("4", "3")),
        labels=[gpu(WHOLE_1)],
    ),
    Row(
        alert="GpuLost",
        severity="critical",
        series={
            name: value.replace("x300", "x9 stale")
            for name, value in world.measured().items()
            if 'UUID="GPU-whole-1-3"' in name
        },
        labels=[fault(WHOLE_1, "replace", "gpu_lost", index=3)],
    ),
)
