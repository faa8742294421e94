from __future__ import annotations

from infra.model.xid import XIDS
from lab.simulator import faults
from tests.journey.alert_objects import broken_memory
from tests.journey.alert_trouble import Trouble, at, broken, each, fault
from tests.journey.alerts_world import World

NOT_READY = "gpuform.io/gpu-not-ready"


def _xid(gpu: int, xid: int, alert: str, kind: str) -> Trouble:
    labels = at("whole-0", gpu, xid=str(xid), **({"class": kind} if kind else {}))
    return broken(f"XID {xid}", "whole-0", gpu, f"--xid {xid}", (alert, labels))


def _wear(world: World) -> None:
    """Memory errors, one a minute, for six hours already: most spare rows are used."""
    world.annotate("whole-1", broken_memory(gpu=0, seconds_ago=6 * 3600))


def _another_card(world: World) -> None:
    """The machine is replaced: its node is deleted and created again under its name."""
    world.fault("whole-1", "--clear")
    world.exchange("whole-1")


def hardware() -> tuple[Trouble, ...]:
    strange = min(set(faults.XIDS) - set(XIDS))
    worn = at("whole-1", 0)
    return (
        Trouble(
            "errors of memory for hours",
            _wear,
            _another_card,
            (
                ("GpuEccUncorrectable", worn),
                ("GpuRowRemapPending", worn),
                ("GpuRowsRemappedMany", worn),
                ("GpuXidReset", at("whole-1", 0, xid="48")),
            ),
        ),
        _xid(0, 54, "GpuXidReplace", "replace"),
        _xid(1, 119, "GpuXidReset", "reset"),
        _xid(2, 13, "GpuXidApplication", "application"),
        _xid(3, 63, "GpuXidInformational", "informational"),
        _xid(4, strange, "GpuXidUnknown", ""),
        broken("no spare row", "whole-1", 1, "--row-remap", ("GpuRowRemapFailed", at("whole-1", 1))),
        broken(
            "no cooling",
            "whole-1",
            2,
            "--thermal",
            ("GpuTemperatureHigh", at("whole-1", 2)),
            ("GpuThermalThrottling", at("whole-1", 2)),
        ),
        broken("little power", "whole-1", 3, "--power", ("GpuPowerThrottling", at("whole-1", 3))),
        broken("a bad link", "whole-1", 4, "--nvlink", ("GpuNvlinkErrors", at("whole-1", 4))),
    )


def nodes() -> tuple[Trouble, ...]:
    broken_plugin = ("nvidia.com/device-plugin.config=nosuch",)
    return (
        Trouble(
            "an exporter that crash-loops",
            fault("slices-3", None, "--exporter-down"),
            fault("slices-3", None, "--clear"),
            (("GpuDcgmExporterAbsent", at("slices-3")),),
        ),
        Trouble(
            "a device plugin without its configuration",
            lambda world: world.relabel("shares-0", *broken_plugin),
            lambda world: world.restore("shares-0"),
            (
                ("GpuDevicePluginCrashLooping", at("shares-0")),
                ("GpuNodeOffersFewer", at("shares-0", resource="nvidia_com_gpu_shared")),
            ),
        ),
        Trouble(
            "a startup taint that stays",
            lambda world: world.kubectl("taint", "node", "slices-2", f"{NOT_READY}=:NoSchedule"),
            lambda world: world.kubectl("taint", "node", "slices-2", f"{NOT_READY}-"),
            (("GpuStartupTaintStuck", at("slices-2")),),
        ),
        Trouble(
            "a MIG layout that does not exist",
            lambda world: world.relabel("slices-0", "nvidia.com/mig.config=nosuch"),
            lambda world: world.restore("slices-0"),
            (("GpuMigConfigFailed", at("slices-0")),),
        ),
        Trouble(
            "a MIG layout that waits for an operand to go",
            each(
                lambda world: world.hold("gpu-feature-discovery", "slices-1", held=True),
                lambda world: world.relabel("slices-1", "nvidia.com/mig.config=all-disabled"),
            ),
            each(
                lambda world: world.restore("slices-1"),
                lambda world: world.hold("gpu-feature-discovery", "slices-1", held=False),
            ),
            (("GpuMigConfigPending", at("slices-1", state="pending")),),
        ),
        Trouble(
            "a fabric manager that does not run",
            fault("whole-4", None, "--fabric-manager"),
            fault("whole-4", None, "--clear"),
            (("GpuFabricManagerFailed", at("whole-4")),),
        ),
    )
