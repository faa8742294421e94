"""Pipes: which units of the GPU are active, after CERN's profiling of A100s.

Utilisation only says that some kernel ran; these metrics say whether it used the tensor cores, which
floating-point units, and the memory. They exist since Volta, for MIG slices too.
"""

from __future__ import annotations

from infra.plan.dashboards.spec import (
    NODE,
    Board,
    Column,
    Query,
    Section,
    Series,
    Stat,
    Table,
    highest,
    of_pool,
)

_PIPES = {
    "PIPE_TENSOR_ACTIVE": ("Tensor", "Matrix units, used by training and inference with mixed precision."),
    "PIPE_FP64_ACTIVE": ("FP64", "Double precision: simulation."),
    "PIPE_FP32_ACTIVE": ("FP32", "Single precision, used by frameworks without mixed precision."),
    "PIPE_FP16_ACTIVE": ("FP16", "Half precision outside the tensor cores."),
}
_WHOLE = {
    "GR_ENGINE_ACTIVE": ("Compute engine", "Part of the time in which the GPU or slice computed at all."),
    "DRAM_ACTIVE": (
        "Memory",
        "Part of the cycles in which the device memory was busy: near 100 %, memory is the limit.",
    ),
}
_DEVICE = "{{node}} gpu {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
_KEYS = "node, pool, gpu, GPU_I_PROFILE, GPU_I_ID"


def board() -> Board:
    """The dashboard, the same for every environment."""
    return Board(
        "pipes",
        "GPU pipes",
        "Which units of the GPUs are active: tensor, FP64, FP32, FP16, memory.",
        (_now(), _pools(), _devices()),
        hours=3,
    )


def _field(name: str, by: str, how: str = "avg") -> str:
    return f"{how} by ({by}) ({of_pool(f'DCGM_FI_PROF_{name}{{{NODE}}}')})"


def _now() -> Section:
    stats = tuple(
        Stat(
            title=name,
            description=f"{text} Mean of the chosen GPUs and slices.",
            expr=f"avg ({of_pool(f'DCGM_FI_PROF_{field}{{{NODE}}}')})",
            unit="percentunit",
        )
        for field, (name, text) in {**_WHOLE, **_PIPES}.items()
    )
    return Section("Now", stats)


def _pools() -> Section:
    return Section(
        "By pool",
        tuple(
            Series(
                title=f"{name} by pool",
                description=text,
                queries=(Query(_field(field, "pool"), "{{pool}}"),),
                unit="percentunit",
                width=8,
            )
            for field, (name, text) in {**_WHOLE, **_PIPES}.items()
        ),
    )


def _devices() -> Section:
    table = Table(
        title="GPUs and slices",
        description="Busy engine and idle pipes: the work waits for memory or launches, or does not suit the "
        "chip.",
        keys={"node": "Node", "pool": "Pool", "gpu": "GPU", "GPU_I_PROFILE": "Slice", "GPU_I_ID": "Instance"},
        columns=tuple(
            Column(name, _field(field, _KEYS), "percentunit", bar=True)
            for field, (name, _) in {**_WHOLE, **_PIPES}.items()
        ),
        links={},
        sort="Compute engine",
        height=10,
    )
    series = tuple(
        Series(
            title=f"{name} by device",
            description=text,
            queries=(Query(highest(_field(field, _KEYS)), _DEVICE),),
            unit="percentunit",
        )
        for field, (name, text) in _PIPES.items()
    )
    return Section("By device", (table, *series))
