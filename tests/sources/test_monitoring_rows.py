"""The sources' GPU monitoring, each part declared (FACTS 1, rows 10, 14, 24 and 25's metrics)."""

from __future__ import annotations

import pytest

from infra.model.gpu.dcgm import DEFAULT
from infra.model.platform.monitoring import Monitoring
from infra.plan import scraping
from infra.plan.dashboards import dashboards
from tests.plan.dashboards.reading import environment, queries

pytestmark = pytest.mark.unit

PIPES = tuple(f"DCGM_FI_PROF_PIPE_{pipe}_ACTIVE" for pipe in ("TENSOR", "FP64", "FP32", "FP16"))
KUBECON = {
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_PROF_SM_ACTIVE"),
    *("DCGM_FI_PROF_SM_OCCUPANCY", *PIPES),
    *("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL"),
    *("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    *("DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES"),
}
WANTED = {
    "CERN's pipes": ("local", "pipes", PIPES),
    "Bumble's load, requests and limits": (
        *("local", "capacity"),
        ("gpuform:pool:gpus_used", "gpuform:resource:requested", "gpuform:resource:limits"),
    ),
    "Bumble's temperature by model": ("local", "devices", ("gpuform:gpu:temperature_celsius",)),
    "utilisation": ("aws-prod", "fleet devices", ("gpuform:device:util_ratio",)),
    "power, and in all": (
        *("aws-prod", "fleet devices"),
        ("gpuform:gpu:power_watts", "gpuform:gpu:energy_joules_total"),
    ),
    "NVLink": ("aws-prod", "fleet devices", ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",)),
    "PCIe": (
        *("aws-prod", "fleet devices"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    ),
    "memory": ("aws-prod", "fleet devices", ("gpuform:device:memory_used_bytes",)),
    "temperature": ("aws-prod", "fleet devices", ("gpuform:gpu:temperature_celsius",)),
}
"""Stack, its dashboards, and series that they show."""


@pytest.mark.parametrize("what", WANTED)
def test_what_is_wanted_is_shown(what: str) -> None:
    stack, names, series = WANTED[what]
    boards = {name: one for name, one in dashboards(environment(stack)).items() if name in names.split()}
    shown = " ".join(asked.expr for asked in queries(boards))
    assert [name for name in series if name not in shown] == []


def test_kubecon_row_25_its_list_of_counters() -> None:
    declared = Monitoring(counters=("DCGM_FI_DEV_FB_TOTAL",))
    env = environment("local").model_copy(update={"monitoring": declared})
    assert set(PIPES) <= set(DEFAULT)
    assert {line.split(",")[0] for line in scraping.fields_csv(env).splitlines()} >= KUBECON
