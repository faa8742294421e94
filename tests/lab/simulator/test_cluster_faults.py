"""On a real control plane: a GPU fails, the driver is upgraded, MPS starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.simulator.site import NAMESPACE, Site

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ROOT = Path(__file__).parents[3]
DEVICES = "simulator.gpuform.io/devices"
DRIVER = "nvidia.com/cuda.driver-version.full"


MPS_3 = """\
version: v1
flags: {migStrategy: none}
sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}
"""


def install(site: Site, version: str) -> None:
    plugin = {"config": {"name": "plugin-config", "default": "whole"}}
    site.operator(driver={"version": version}, mig={"strategy": ""}, devicePlugin=plugin)


@pytest.fixture(autouse=True, scope="module")
def operator(site: Site) -> None:
    site.config_map("plugin-config", {"whole": "version: v1\n", "mps-3": MPS_3})
    install(site, "580.126.09")


def test_another_driver_goes_node_by_node_and_leaves_a_v100_behind(site: Site) -> None:
    t4s = ("up-0", "up-1", "up-2")
    for name in t4s:
        site.node(name, "1eb8", 1)
        site.labelled(name, DRIVER, "580.126.09")
    install(site, "595.91.07")
    for name in t4s:
        site.labelled(name, DRIVER, "595.91.07")
    v100 = site.node("up-3", "1db1", 1)
    crashes = ("get", "pods", "-n", NAMESPACE, "--field-selector", f"spec.nodeName={v100}", "-o", "json")
    site.until(lambda: site.kubectl(*crashes), lambda pods: "R580 is the last branch that does" in pods)
    install(site, "580.126.09")
    for name in (*t4s, v100):
        site.labelled(name, DRIVER, "580.126.09")


def gpuform(site: Site, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from gpuform.cli.main import main; main()", *args]
    env = {**os.environ, "GPUFORM_STATE": str(site.plane.paths.state)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


def capacity(site: Site, node: str) -> str:
    return str(site.get("node", node)["status"]["capacity"]["nvidia.com/gpu"])


def test_nvidia_three_gpus_one_unhealthy(site: Site) -> None:
    node = site.node("health-0", "1eb8", 3)
    site.offers(node, {"gpu": 3})
    site.pod("holds", {"gpu": 2}, node)
    held = site.phase("holds", "Running")["metadata"]["annotations"][DEVICES]
    done = gpuform(site, "simulate", "health", node, "--gpu", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"{node}: GPU 0 is unhealthy: its devices stay in the capacity, and are not allocatable\n"
    )
    site.offers(node, {"gpu": 2})
    assert capacity(site, node) == "3"
    kept = site.get("pod", "holds")
    assert (kept["status"]["phase"], kept["metadata"]["annotations"][DEVICES]) == ("Running", held)

    again = gpuform(site, "simulate", "health", node, "--gpu", "0")
    assert again.stdout == f"{node}: GPU 0 is already unhealthy\n"
    well = gpuform(site, "simulate", "health", node, "--gpu", "0", "--ok")
    assert well.returncode == 0, well.stderr
    assert "is restarted, since it never reports a GPU as healthy again" in well.stdout
    site.offers(node, {"gpu": 3})
    site.kubectl("delete", "pod", "holds")


def test_cisco_mps_by_its_daemon(site: Site) -> None:
    """Discovery labels the node MPS-capable, which starts the daemon that the plugin has waited for."""
    node = site.node("mps-0", "1eb8", 2, config="mps-3")
    site.offers(node, {"gpu": 6})
    labels = site.labelled(node, "nvidia.com/gpu.sharing-strategy", "mps")
    assert labels["nvidia.com/mps.capable"] == "true"
    assert labels["nvidia.com/gpu.product"] == "Tesla-T4-SHARED"
    (daemon,) = site.operands(node, "nvidia-device-plugin-mps-control-daemon")
    limits = json.loads(daemon["metadata"]["annotations"]["simulator.gpuform.io/mps-limits"])
    assert limits["default_device_pinned_mem_limit"] == "5120M"
    site.pod("client", {"gpu": 1}, node, memory="all")
    held = "simulator.gpuform.io/gpu-memory-held"
    site.until(lambda: site.get("pod", "client")["metadata"]["annotations"].get(held), "5120".__eq__)
    site.kubectl("delete", "pod", "client")
