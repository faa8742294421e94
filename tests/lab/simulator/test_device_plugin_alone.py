"""NVIDIA's device plugin without the operator, as planned, on nodes with a preinstalled driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.plan import device_plugin, nodes, quotas, sharing
from tests.build.environments import on

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

CHARTS = Path(__file__).parents[3] / "charts"
THREE = {"kind": "time_slicing", "replicas": 3, "rename": False, "fail_requests_greater_than_one": False}
ALONE = {"mode": "device_plugin"}
ENV = on("embedded", {"name": "g4dn", "machine": "g4dn.xlarge", "sharing": THREE}, gpu_operator=ALONE)
BARE = "g4dn-bare"


def _bare() -> dict[str, Any]:
    (made,) = nodes.simulated_nodes(ENV, ENV.pools[0])
    made["metadata"]["name"] = made["metadata"]["labels"]["kubernetes.io/hostname"] = BARE
    del made["metadata"]["annotations"]["simulator.gpuform.io/host-driver"]
    return made


@pytest.fixture(autouse=True, scope="module")
def plugin(site: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    release, shares = device_plugin.release(ENV), sharing.device_plugin_config_map(ENV)
    assert shares
    made = [node for pool in ENV.pools for node in nodes.simulated_nodes(ENV, pool)]
    site.apply(*quotas.namespaces(ENV), shares, *made, _bare())
    values = tmp_path_factory.mktemp("alone") / "values.json"
    values.write_text(json.dumps(release.values))
    place = ["-n", release.namespace, "-f", str(values)]
    site.helm("install", release.name, str(CHARTS.parent / release.chart), *place)
    yield
    site.helm("uninstall", release.name, "-n", release.namespace, "--wait")


def test_cisco_one_gpu_is_three_without_the_operator(site: Any) -> None:
    site.offers("g4dn-0", {"gpu": 3})
    result = site.labelled("g4dn-0", "nvidia.com/gpu.product", "Tesla-T4-SHARED")
    assert result["nvidia.com/gpu"] == "true", "the label of the chart's selector stays"
    assert "nvidia.com/gpu.deploy.device-plugin" not in result, "nothing sets the operator's labels"


def test_the_gate_finds_every_pod_of_the_chart_by_one_label(site: Any) -> None:
    site.offers("g4dn-0", {"gpu": 3})

    def ready() -> set[str]:
        pods = site.operands("g4dn-0", device_plugin.NAME)
        states = {pod["metadata"]["ownerReferences"][0]["name"]: pod["status"]["conditions"] for pod in pods}
        is_ready = {"type": "Ready", "status": "True"}.items()
        return {name for name, found in states.items() if any(is_ready <= item.items() for item in found)}

    site.until(ready, {"nvidia-device-plugin", "nvidia-device-plugin-gpu-feature-discovery"}.__eq__)


def test_the_server_takes_the_runtime_class(site: Any) -> None:
    env = on("hosts", {"gpu": {"models": ["T4"], "count": 1}}, gpu_operator=ALONE)
    made = device_plugin.runtime_class(env)
    site.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=json.dumps(made))


def test_without_a_driver_on_the_node_the_plugin_says_so(site: Any) -> None:
    def crashes() -> str:
        where = ["-n", "gpu-operator", "--field-selector", "reason=BackOff", "-o", "json"]
        return str(site.kubectl("get", "events", *where))

    site.until(crashes, lambda text: "ERROR_LIBRARY_NOT_FOUND: no driver on this node" in text)
    assert site.allocatable(BARE) == {}
