"""Devices: every GPU and MIG slice, as NVIDIA's exporter reports it.

Metrics of a whole GPU (temperature, power, clocks, links) have one line per GPU; utilisation and memory have
one per MIG slice, or per GPU without MIG.
"""

from __future__ import annotations

from infra.model.environment import Environment
from infra.plan.dashboards.spec import (
    NODE,
    POOL,
    Board,
    Column,
    Query,
    Section,
    Series,
    Table,
    highest,
    of_pool,
)

_HERE = f"{{{POOL}, {NODE}}}"
_DEVICE = "{{node}} gpu {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
_GPU = "{{node}} gpu {{gpu}}"
_BY_DEVICE = "sum by (node, pool, gpu, modelName, GPU_I_PROFILE, GPU_I_ID)"
_BY_GPU = "max by (node, pool, gpu, modelName)"
# Without a clock event the exporter reports 0 and an empty name.
_EVENTS = f'DCGM_EXP_CLOCK_EVENTS_COUNT{{clock_event!="", {NODE}}}'
_HOT = ((80.0, "orange"), (90.0, "red"))


def board(env: Environment) -> Board:
    """The dashboard; NVLink only if a GPU may have it."""
    return Board(
        "devices",
        "GPU devices (DCGM)",
        "Each GPU and each slice: load, memory, heat, power, clocks, links.",
        (_now(), _load(), _card(), _links(has_nvlink(env))),
        hours=3,
    )


def _now() -> Section:
    used, total = (f"{_BY_DEVICE} (gpuform:device:memory_{what}_bytes{_HERE})" for what in ("used", "total"))
    devices = Table(
        title="GPUs and slices",
        description="One row for each MIG slice, or for each GPU without MIG.",
        keys={
            "node": "Node",
            "pool": "Pool",
            "gpu": "GPU",
            "modelName": "Model",
            "GPU_I_PROFILE": "Slice",
            "GPU_I_ID": "Instance",
        },
        columns=(
            Column(
                "Utilisation", f"{_BY_DEVICE} (gpuform:device:util_ratio{_HERE})", "percentunit", bar=True
            ),
            Column("Memory in use", used, "bytes"),
            Column("Memory", total, "bytes"),
            Column("Memory share", f"{used} / {total}", "percentunit", ((0.9, "red"),), bar=True),
        ),
        links={},
        sort="Utilisation",
        height=9,
    )
    gpus = Table(
        title="GPUs",
        description="Metrics of the whole GPU, with or without MIG. The last XID stays until the next one: "
        "the dashboard health says whether it is recent.",
        keys={"node": "Node", "pool": "Pool", "gpu": "GPU", "modelName": "Model"},
        columns=(
            Column("Temperature", f"{_BY_GPU} (gpuform:gpu:temperature_celsius{_HERE})", "celsius", _HOT),
            Column("Power", f"{_BY_GPU} (gpuform:gpu:power_watts{_HERE})", "watt"),
            Column("SM clock", f"{_BY_GPU} ({_raw('DCGM_FI_DEV_SM_CLOCK')}) * 1e6", "hertz"),
            Column("Last XID", f"{_BY_GPU} ({_raw('DCGM_FI_DEV_XID_ERRORS')})", "short"),
        ),
        links={},
        sort="Temperature",
    )
    return Section("Now", (devices, gpus))


def _load() -> Section:
    return Section(
        "Load",
        (
            Series(
                title="Utilisation",
                description="Part of the time in which a kernel ran. How much of the chip the kernel used is "
                "on the dashboard pipes.",
                queries=(Query(highest(f"gpuform:device:util_ratio{_HERE}"), _DEVICE),),
                unit="percentunit",
                most=1,
            ),
            Series(
                title="Memory in use",
                description="Memory allocated by processes; frameworks often allocate more than they need.",
                queries=(Query(highest(f"gpuform:device:memory_used_bytes{_HERE}"), _DEVICE),),
                unit="bytes",
            ),
            _per_gpu(
                "Memory copies",
                "Part of the time in which device memory was read or written.",
                "DCGM_FI_DEV_MEM_COPY_UTIL",
                "percent",
            ),
            Series(
                title="Video engines",
                description="Part of the time in which encoder and decoder worked; transcoding uses only "
                "these.",
                queries=tuple(
                    Query(_card_of(f"DCGM_FI_DEV_{engine}_UTIL"), f"{_GPU} {name}")
                    for engine, name in (("ENC", "encoder"), ("DEC", "decoder"))
                ),
                unit="percent",
                most=100,
            ),
        ),
    )


def _card() -> Section:
    return Section(
        "Card",
        (
            Series(
                title="Temperature",
                description="Temperature of the chip. A GPU throttles before it is damaged.",
                queries=(Query(highest(f"gpuform:gpu:temperature_celsius{_HERE}"), _GPU),),
                unit="celsius",
                steps=_HOT,
            ),
            _per_gpu(
                "Temperature of the memory",
                "GPUs without HBM report no value, or zero.",
                "DCGM_FI_DEV_MEMORY_TEMP",
                "celsius",
            ),
            Series(
                title="Power",
                description="Power draw of each GPU. High power at low utilisation is waste.",
                queries=(Query(highest(f"gpuform:gpu:power_watts{_HERE}"), _GPU),),
                unit="watt",
            ),
            Series(
                title="Throttled",
                description="Part of the time in which the GPU was throttled by its power limit or heat.",
                queries=tuple(
                    Query(
                        _card_of(f"rate(DCGM_FI_DEV_{why}_VIOLATION{{{NODE}}}[5m])", " / 1e9"),
                        f"{_GPU} {name}",
                    )
                    for why, name in (("POWER", "power"), ("THERMAL", "heat"))
                ),
                unit="percentunit",
            ),
            _per_gpu(
                "SM clock",
                "Falls when the GPU is idle, hot or at its power limit.",
                "DCGM_FI_DEV_SM_CLOCK",
                "hertz",
                " * 1e6",
            ),
            _per_gpu(
                "Memory clock", "Rarely changes under load.", "DCGM_FI_DEV_MEM_CLOCK", "hertz", " * 1e6"
            ),
            Series(
                title="Reasons for lower clocks",
                description="Number of the last samples with each reason; idle is one of the reasons.",
                queries=(
                    Query(
                        highest(f"max by (node, pool, gpu, clock_event) ({of_pool(_EVENTS)})"),
                        _GPU + " {{clock_event}}",
                    ),
                ),
                unit="short",
                width=24,
            ),
        ),
    )


def has_nvlink(env: Environment) -> bool:
    """Whether any GPU of the environment has NVLink, by the catalogue."""
    return any(gpu.nvlink for pool in env.pools for gpu in pool.gpus)


def _links(nvlink: bool) -> Section:
    return Section(
        "Links",
        (
            Series(
                title="PCIe",
                description="Bytes per second over the bus, protocol included: from the GPU (tx) and to the "
                "GPU (rx).",
                queries=tuple(
                    Query(_card_of(f"DCGM_FI_PROF_PCIE_{way.upper()}_BYTES{{{NODE}}}"), f"{_GPU} {way}")
                    for way in ("tx", "rx")
                ),
                unit="Bps",
            ),
            Series(
                title="PCIe replays",
                description="Packets sent again. A few are normal; many point to a bad slot, riser or card.",
                queries=(Query(_card_of(f"increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{NODE}}}[1h])"), _GPU),),
                unit="short",
            ),
            *((_nvlink(),) if nvlink else ()),
        ),
    )


def _nvlink() -> Series:
    return Series(
        title="NVLink",
        description="Rate of the counter of all lanes; a GPU without NVLink has no line.",
        queries=(Query(_card_of(f"rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{{NODE}}}[5m])"), _GPU),),
        unit="short",
    )


def _raw(name: str) -> str:
    return of_pool(f"{name}{{{NODE}}}")


def _card_of(series: str, factor: str = "") -> str:
    """One value per GPU: the exporter repeats a GPU's metrics for each of its slices."""
    chosen = series if "{" in series else f"{series}{{{NODE}}}"
    return highest(f"max by (node, pool, gpu) ({of_pool(chosen)}){factor}")


def _per_gpu(title: str, description: str, name: str, unit: str, factor: str = "") -> Series:
    return Series(
        title=title, description=description, queries=(Query(_card_of(name, factor), _GPU),), unit=unit
    )
