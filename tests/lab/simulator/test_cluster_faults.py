"""On a real control plane: a GPU fails, the plugin restarts, the driver is upgraded, MPS starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.simulator.site import NAMESPACE, TOOLKIT, Site

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "gpu-operator-sim"
PLUGIN_APP = "nvidia-device-plugin-daemonset"
DEVICES = "simulator.gpuform.io/devices"
DRIVER = "nvidia.com/cuda.driver-version.full"


MPS_3 = """\
version: v1
flags: {migStrategy: none}
sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}
"""


def install(site: Site, version: str) -> None:
    values = site.plane.paths.state / "faults.yaml"
    driver = {"version": version}
    config = {"config": {"name": "plugin-config", "default": "whole"}}
    operator = {"driver": driver, "mig": {"strategy": ""}, "devicePlugin": config, "toolkit": TOOLKIT}
    values.write_text(yaml.safe_dump(operator))
    site.helm("upgrade", "--install", "gpu-operator", str(CHART), "-n", NAMESPACE, "-f", str(values))


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


WRONG = [
    (("nowhere", "--gpu", "0"), "NODE: there is no node nowhere"),
    (("cpu-0", "--gpu", "0"), "NODE: cpu-0 has no simulated GPU"),
    (("health-1", "--gpu", "2"), "--gpu: health-1 has no GPU 2; use a number from 0 to 1"),
]


@pytest.mark.parametrize(("args", "said"), WRONG)
def test_what_is_not_there_cannot_fall_sick(site: Site, args: tuple[str, ...], said: str) -> None:
    site.node("health-1", "1eb8", 2)
    done = gpuform(site, "simulate", "health", *args)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.fixture
def offers_seen(site: Site, tmp_path: Path) -> Iterator[Any]:
    """All allocatable counts of ``gpu`` on the node since the start, in order."""
    kubectl = [str(site.plane.toolchain.path("kubectl")), "--kubeconfig", str(site.plane.kubeconfig)]
    log = (tmp_path / "watch").open("w")
    template = "{.status.allocatable.nvidia\\.com/gpu}{'\\n'}"
    command = [*kubectl, "get", "node", "restart-0", "--watch", "-o", f"jsonpath={template}"]
    started: list[subprocess.Popen[bytes]] = []

    def seen() -> list[str]:
        if not started:
            started.append(subprocess.Popen(command, stdout=log))
        lines = (tmp_path / "watch").read_text().split()
        return [line for n, line in enumerate(lines) if n == 0 or lines[n - 1] != line]

    yield seen
    for process in started:
        process.kill()
        process.wait()
    log.close()


def test_nvidia_plugin_restarts_without_a_lost_allocation(site: Site, offers_seen: Any) -> None:
    node = site.node("restart-0", "1db1", 4)
    site.offers(node, {"gpu": 4})
    site.pod("holds", {"gpu": 3}, node)
    held = site.phase("holds", "Running")["metadata"]["annotations"][DEVICES]
    site.until(offers_seen, ["4"].__eq__)
    (plugin,) = site.operands(node, PLUGIN_APP)
    site.kubectl("delete", "pod", "-n", NAMESPACE, plugin["metadata"]["name"], "--grace-period=0", "--force")
    site.until(offers_seen, ["4", "0", "4"].__eq__)
    kept = site.get("pod", "holds")
    assert (kept["status"]["phase"], kept["metadata"]["annotations"][DEVICES]) == ("Running", held)
    site.pod("two", {"gpu": 2}, node)
    refused = site.phase("two", "Failed")["status"]["message"]
    assert "Requested: 2, Available: 1" in refused
    site.pod("one", {"gpu": 1}, node)
    given = site.phase("one", "Running")["metadata"]["annotations"][DEVICES]
    assert given not in held.split(",")
    site.kubectl("delete", "pod", "holds", "one", "two")


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
