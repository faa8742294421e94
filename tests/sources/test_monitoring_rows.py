"""The sources' GPU monitoring, each part declared (FACTS 1, rows 10, 14, 24 and 25's metrics)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import load, parse
from infra.model.environment import Environment
from infra.plan import counters, monitoring, rules
from infra.plan.dashboards import dashboards

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "Pulumi.local.yaml"
PIPES = tuple(f"DCGM_FI_PROF_PIPE_{pipe}_ACTIVE" for pipe in ("TENSOR", "FP64", "FP32", "FP16"))
KUBECON = (
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_PROF_SM_ACTIVE"),
    *(
        "DCGM_FI_PROF_SM_OCCUPANCY",
        *PIPES,
        "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_TOTAL",
    ),
    *("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    *("DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES"),
)


def test_cern_row_10_pipes_are_counted_and_shown() -> None:
    env = _local()
    assert set(PIPES) <= _exported(env)
    assert set(PIPES) <= _named(PIPES, _queries(env, "pipes"))


def test_bumble_row_14_one_scrape_configuration_and_two_dashboards() -> None:
    env = _local(scrape="scrape_configs")
    [job] = monitoring.release(env).values["prometheus"]["prometheusSpec"]["additionalScrapeConfigs"]
    assert job["kubernetes_sd_configs"][0]["namespaces"] == {"names": ["gpu-operator"]}
    # Load, requests and limits on one dashboard; DCGM's metrics, as temperature by model, on the other.
    load = ("gpuform:pool:gpus_used", "gpuform:resource:requested", "gpuform:resource:limits")
    assert set(load) == _named(load, _queries(env, "capacity"))
    assert _named(("DCGM_FI_DEV_GPU_TEMP", "gpuform:gpu:temperature_celsius"), _queries(env, "devices"))


@pytest.mark.parametrize(
    ("what", "series"),
    [
        ("utilisation", ("gpuform:device:util_ratio",)),
        ("power, and in all", ("gpuform:gpu:power_watts", "gpuform:gpu:energy_joules_total")),
        ("NVLink", ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",)),
        ("PCIe", ("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES")),
        ("memory", ("gpuform:device:memory_used_bytes",)),
        ("temperature", ("gpuform:gpu:temperature_celsius",)),
    ],
)
def test_nvidia_row_24_what_is_wanted_is_shown(what: str, series: tuple[str, ...]) -> None:
    env = load(ROOT / "Pulumi.aws-prod.yaml")  # its A100 and H100 have NVLink
    shown = [query for name in ("fleet", "devices") for query in _queries(env, name)]
    assert _named(series, shown) == set(series), what


@pytest.mark.parametrize(
    ("found", "alert"),
    [
        ("bad tasks", "GpuXidApplication"),
        ("sick GPUs", "GpuXidReplace"),
        ("throttling", "GpuThermalThrottling"),
        ("power waste", "GpuAllocatedIdle"),
    ],
)
def test_nvidia_row_24_what_is_to_be_found_is_told(found: str, alert: str) -> None:
    told = {rule["alert"] for group in rules.groups(_local()) for rule in group["rules"] if "alert" in rule}
    assert alert in told, found


def test_kubecon_row_25_its_list_of_counters() -> None:
    assert set(KUBECON) <= _exported(_local(counters=["DCGM_FI_DEV_FB_TOTAL"]))


def test_kubecon_row_25_gkes_metrics_are_read_into_the_same_series() -> None:
    gke = parse(
        {
            "name": "gke",
            "cluster": {"kind": "existing", "kubeconfig": "~/.kube/config"},
            "gpu_operator": {"driver": "host", "toolkit": "host"},
            "pools": [
                {
                    "name": "t4",
                    "selector": {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"},
                    "gpu": {"models": ["T4"], "count": 1},
                }
            ],
            "monitoring": {"storage": {"size": "10Gi"}},
        }
    )
    recorded = {
        rule["record"]: rule["expr"]
        for group in rules.groups(gke)
        for rule in group["rules"]
        if "record" in rule
    }
    cloud = "kubernetes_io:node_accelerator"
    assert f"{cloud}_duty_cycle" in recorded["gpuform:device:util_ratio"]
    assert f"{cloud}_tensorcore_utilization" in recorded["gpuform:device:util_ratio"]
    assert f"{cloud}_memory_used" in recorded["gpuform:device:memory_used_bytes"]
    assert f"{cloud}_memory_total" in recorded["gpuform:device:memory_total_bytes"]


def _local(**declared: Any) -> Environment:
    stack = yaml.safe_load(LOCAL.read_text(encoding="utf-8"))["config"]["gpuform:environment"]
    return parse({**stack, "monitoring": declared})


def _exported(env: Environment) -> set[str]:
    return {line.split(",")[0] for line in counters.csv(env).splitlines()}


def _named(series: Iterable[str], queries: list[str]) -> set[str]:
    return {name for name in series if any(name in query for query in queries)}


def _queries(env: Environment, board: str) -> list[str]:
    found: list[str] = []
    panels = list(dashboards(env)[board]["panels"])
    while panels:
        panel = panels.pop()
        panels += panel.get("panels") or []
        found += [target["expr"] for target in panel.get("targets") or []]
    return found
