"""Errors that GPUs and their driver report: a section of the dashboard health."""

from __future__ import annotations

from infra.plan.dashboards.spec import NODE, POOL, Query, Section, Series, highest, of_pool

_GPU = "{{node}} gpu {{gpu}}"
# Without a recent XID the exporter reports 0 and an empty number.
_XIDS = f'DCGM_EXP_XID_ERRORS_COUNT{{xid!="", {NODE}}}'


def section(nvlink: bool) -> Section:
    """XIDs, ECC, remapped rows, heat and links, over time."""

    return Section(
        "Errors",
        (
            Series(
                title="XIDs",
                description="Errors of the driver in the last five minutes, by number.",
                queries=(
                    Query(
                        highest(f"sum by (node, gpu, xid) ({of_pool(_XIDS)})"),
                        _GPU + " XID {{xid}}",
                    ),
                ),
                unit="short",
            ),
            Series(
                title="ECC errors",
                description="In the last hour. Single-bit errors are corrected; a double-bit error ends the "
                "programs on the GPU.",
                queries=(
                    Query(_grown("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"), f"{_GPU} single-bit"),
                    Query(_grown("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"), f"{_GPU} double-bit"),
                ),
                unit="short",
            ),
            Series(
                title="Remapped rows",
                description="Memory rows replaced by spare rows, over the life of the GPU. A failed remap "
                "means that the GPU must be replaced.",
                queries=tuple(
                    Query(
                        highest(f"max by (node, pool, gpu) ({of_pool(f'{name}{{{NODE}}}')})"),
                        f"{_GPU} {what}",
                    )
                    for name, what in (
                        ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "correctable"),
                        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "uncorrectable"),
                        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "failed"),
                    )
                ),
                unit="short",
            ),
            Series(
                title="Temperature",
                description="Temperature of each chip.",
                queries=(Query(highest(f"gpuform:gpu:temperature_celsius{{{POOL}, {NODE}}}"), _GPU),),
                unit="celsius",
                steps=((80, "orange"), (90, "red")),
            ),
            *((_nvlink(),) if nvlink else ()),
        ),
    )


def _nvlink() -> Series:
    return Series(
        title="NVLink errors",
        description="In the last hour. Replays and checksum errors are corrected; a link that needs "
        "recoveries usually fails again soon.",
        queries=tuple(
            Query(_grown(f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL"), f"{_GPU} {name}")
            for kind, name in (
                ("REPLAY", "replays"),
                ("CRC_FLIT", "flow control"),
                ("CRC_DATA", "data"),
                ("RECOVERY", "recoveries"),
            )
        ),
        unit="short",
    )


def _grown(name: str) -> str:
    return highest(f"max by (node, pool, gpu) ({of_pool(f'increase({name}{{{NODE}}}[1h])')})")
