"""On a real control plane: every node is scraped, broken by the command, and repaired."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lab.plane.layout import Layout, Record
from tests.lab.simulator.scraping import Series
from tests.lab.simulator.site import NAMESPACE, Site
from tests.lab.simulator.test_cluster_faults import gpuform

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

EXPORTER = "nvidia-dcgm-exporter"
SLICE_4 = """\
version: v1
sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""
COUNTERS = """\
DCGM_FI_DEV_GPU_UTIL, gauge, busy
DCGM_FI_DEV_GPU_TEMP, gauge, degrees
DCGM_FI_DEV_FB_USED, gauge, MiB
DCGM_FI_DEV_FB_FREE, gauge, MiB
DCGM_FI_DEV_XID_ERRORS, gauge, the last XID
DCGM_EXP_XID_ERRORS_COUNT, counter, XIDs
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, busy
DCGM_FI_DRIVER_VERSION, label, driver
"""
SHARED = "nvidia.com/gpu.shared"


@pytest.fixture(scope="module")
def exporters(site: Site) -> Iterator[httpx.Client]:
    """The operator with its own counters, and a client of the simulated exporters."""
    port = Record.load(Layout(site.plane.paths)).ports.get("simulator-metrics")
    if port is None:
        pytest.skip("the control plane gives the simulator no port for its exporters")
    site.config_map("plugin-config", {"whole": "version: v1\n", "slice-4": SLICE_4})
    site.config_map("counters", {"dcgm-metrics.csv": COUNTERS})
    plugin = {"config": {"name": "plugin-config", "default": "whole"}}
    site.operator(mig={"strategy": "mixed"}, devicePlugin=plugin)
    volumes = [{"name": "metrics-config", "configMap": {"name": "counters"}}]
    patch = {"spec": {"template": {"spec": {"volumes": volumes}}}}
    site.kubectl("patch", "daemonset", EXPORTER, "-n", NAMESPACE, "-p", json.dumps(patch))
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield client


def scraped(site: Site, client: httpx.Client, node: str, good: Any) -> Series:
    """The first scrape that satisfies ``good``; an exporter that does not run yet answers 503."""

    def look() -> Series:
        answer = client.get(f"/nodes/{node}/metrics")
        return Series(answer.text if answer.status_code == 200 else "")

    found: Series = site.until(look, lambda series: series.samples and good(series))
    return found


def xids(series: Series) -> dict[str, float]:
    return {labels.get("xid", ""): value for labels, value in series.of("XID_ERRORS_COUNT")}


def test_whole_shared_and_cut_gpus_are_measured_each_in_its_way(site: Site, exporters: httpx.Client) -> None:
    whole, shared = site.node("m-whole", "20b0", 2), site.node("m-shared", "1eb8", 1, config="slice-4")
    cut = site.node("m-cut", "20b0", 1)
    site.label(cut, "nvidia.com/mig.config", "all-3g.20gb")
    site.offers(whole, {"gpu": 2})
    site.offers(shared, {"gpu.shared": 4})
    site.until(lambda: site.allocatable(cut), lambda found: found.get("mig-3g.20gb") == 2)
    site.pod("alone", {"gpu": 1}, whole, memory="1000", load="0.75")
    site.pod("one", {"gpu.shared": 1}, shared, load="0.25")
    site.pod("two", {"gpu.shared": 1}, shared, load="0.5")
    site.pod("slice", {"mig-3g.20gb": 1}, cut, load="1")
    for name in ("alone", "one", "two", "slice"):
        site.phase(name, "Running")

    found = scraped(site, exporters, whole, lambda s: 1000 in [v for _, v in s.of("FB_USED")])
    assert sorted((labels.get("pod"), value) for labels, value in found.of("GPU_UTIL", pod="alone")) == [
        ("alone", 75)
    ]
    assert sorted(value for _, value in found.of("GPU_UTIL")) == [0, 75]
    assert len(found.of("GPU_TEMP", Hostname=whole, DCGM_FI_DRIVER_VERSION="595.91.07")) == 2

    found = scraped(site, exporters, shared, lambda s: s.one("GPU_UTIL") == 75)
    assert not any("pod" in labels for _, labels, _ in found.samples)

    found = scraped(site, exporters, cut, lambda s: s.of("GR_ENGINE_ACTIVE", pod="slice"))
    assert found.of("GPU_UTIL") == []
    assert sorted((labels["GPU_I_ID"], value) for labels, value in found.of("GR_ENGINE_ACTIVE")) == [
        ("1", 1.0),
        ("2", 0.0),
    ]
    site.kubectl("delete", "pod", "alone", "one", "two", "slice")


def test_an_xid_is_seen_takes_the_gpu_away_and_is_cleared(site: Site, exporters: httpx.Client) -> None:
    node = site.node("m-xid", "1eb8", 2)
    site.offers(node, {"gpu": 2})
    done = gpuform(site, "simulate", "fault", node, "--gpu", "1", "--xid", "79")
    assert done.returncode == 0, done.stderr
    site.offers(node, {"gpu": 1})
    found = scraped(site, exporters, node, lambda s: "79" in xids(s))
    assert found.one("XID_ERRORS", gpu="1") == 79
    application = gpuform(site, "simulate", "fault", node, "--xid", "13")
    assert "the device plugin ignores it" in application.stdout
    scraped(site, exporters, node, lambda s: xids(s) == {"79": 1, "13": 1})
    cleared = gpuform(site, "simulate", "fault", node, "--clear")
    assert "is restarted, since it never reports a GPU as healthy again" in cleared.stdout
    site.offers(node, {"gpu": 2})
    assert scraped(site, exporters, node, xids).one("XID_ERRORS", gpu="1") == 79


def test_an_exporter_goes_down_by_command_and_by_its_counters(site: Site, exporters: httpx.Client) -> None:
    node = site.node("m-down", "1eb8")
    scraped(site, exporters, node, xids)

    def waits() -> list[str]:
        statuses = (
            s for pod in site.operands(node, EXPORTER) for s in pod["status"].get("containerStatuses", ())
        )
        return [s["state"].get("waiting", {}).get("reason", "") for s in statuses]

    for breaks, mends in (
        (lambda: gpuform(site, "simulate", "fault", node, "--exporter-down"),
         lambda: gpuform(site, "simulate", "fault", node, "--clear")),
        (lambda: site.config_map("counters", {"dcgm-metrics.csv": "DCGM_FI_DEV_NONSENSE, gauge, x\n"}),
         lambda: site.config_map("counters", {"dcgm-metrics.csv": COUNTERS})),
    ):  # fmt: skip
        breaks()
        site.until(waits, ["CrashLoopBackOff"].__eq__)
        assert exporters.get(f"/nodes/{node}/metrics").status_code == 503
        mends()
        site.until(waits, [""].__eq__)
        scraped(site, exporters, node, xids)
