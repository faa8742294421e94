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
        description="One row for each GPU that is not cut, or slice of one that is.",
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
        description="What a card has once, however it is cut. The last XID stays until another one comes: "
        "whether it is recent, the dashboard of health says.",
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
                description="Part of the time in which a kernel ran. It says nothing of how much of "
                "the chip the "
                "kernel filled: that is on the dashboard of pipes.",
                queries=(Query(highest(f"gpuform:device:util_ratio{_HERE}"), _DEVICE),),
                unit="percentunit",
                most=1,
            ),
            Series(
                title="Memory in use",
                description="What processes have allocated; frameworks often take more than they need.",
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
                description="Part of the time in which encoder and decoder worked; transcoding fills "
                "them only.",
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
                description="Of the chip. A card slows itself down before it is harmed.",
                queries=(Query(highest(f"gpuform:gpu:temperature_celsius{_HERE}"), _GPU),),
                unit="celsius",
                steps=_HOT,
            ),
            _per_gpu(
                "Temperature of the memory",
                "Cards without HBM report none, or zero.",
                "DCGM_FI_DEV_MEMORY_TEMP",
                "celsius",
            ),
            Series(
                title="Power",
                description="What each card draws. Much power at little utilisation is waste.",
                queries=(Query(highest(f"gpuform:gpu:power_watts{_HERE}"), _GPU),),
                unit="watt",
            ),
            Series(
                title="Held back",
                description="Part of the time in which the card ran slower for its power limit or its heat.",
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
                "Falls when the card is idle, hot or at its power limit.",
                "DCGM_FI_DEV_SM_CLOCK",
                "hertz",
                " * 1e6",
            ),
            _per_gpu("Memory clock", "Seldom moves under load.", "DCGM_FI_DEV_MEM_CLOCK", "hertz", " * 1e6"),
            Series(
                title="Reasons of lower clocks",
                description="In how many of the last samples each reason held; idle is one of them.",
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
                description="Bytes per second over the bus, protocol and all: from the GPU (tx) and "
                "to it (rx).",
                queries=tuple(
                    Query(_card_of(f"DCGM_FI_PROF_PCIE_{way.upper()}_BYTES{{{NODE}}}"), f"{_GPU} {way}")
                    for way in ("tx", "rx")
                ),
                unit="Bps",
            ),
            Series(
                title="PCIe replays",
                description="Packets sent again. A few are nothing; many are a bad slot, riser or card.",
                queries=(Query(_card_of(f"increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{NODE}}}[1h])"), _GPU),),
                unit="short",
            ),
            *((_nvlink(),) if nvlink else ()),
        ),
    )


def _nvlink() -> Series:
    return Series(
        title="NVLink",
        description="How fast the counter of all lanes moves; a card without NVLink has no line.",
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
