"""CERN's webinar: what its slides show, declared and planned (FACTS 1, rows 4 to 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import load, parse
from infra.model import gpu as catalogue
from infra.plan import gpu_operator, sharing, workloads

pytestmark = pytest.mark.unit

LOCAL = load(Path(__file__).parents[2] / "Pulumi.local.yaml")

# Row 4, the hardware labels that discovery wrote for one T4.
T4_LABELS = {
    "nvidia.com/gpu.compute.major": "7",
    "nvidia.com/gpu.compute.minor": "5",
    "nvidia.com/gpu.family": "turing",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.product": "Tesla-T4",
    "nvidia.com/mig.capable": "false",
}


def test_cern_gfd_labels_of_a_t4() -> None:
    gpu = catalogue.GPUS["T4"]
    assert {
        "nvidia.com/gpu.compute.major": str(gpu.compute[0]),
        "nvidia.com/gpu.compute.minor": str(gpu.compute[1]),
        "nvidia.com/gpu.family": gpu.family,
        "nvidia.com/gpu.memory": str(gpu.memory_mib),
        "nvidia.com/gpu.product": gpu.product,
        "nvidia.com/mig.capable": str(gpu.mig_capable).lower(),
    } == T4_LABELS


def test_cern_mig_strategy_label_is_operator_wide() -> None:
    """The T4 node of the slide says mixed too, though it has no MIG."""
    config_map = sharing.device_plugin_config_map(LOCAL)
    assert config_map is not None
    assert yaml.safe_load(config_map["data"]["slice-4"])["flags"] == {"migStrategy": "mixed"}


def test_cern_taint_of_gpu_node_groups() -> None:
    mapping = LOCAL.resolved()
    mapping["gpu_operator"]["gpu_taint"] = "node-role.kubernetes.io/gpu"
    env = parse(mapping)
    for pool in env.pools:
        taints = [f"{t['key']}={t['value']}:{t['effect']}" for t in sharing.pool_taints(env, pool)]
        assert taints == (["node-role.kubernetes.io/gpu=true:NoSchedule"] if pool.gpus else [])
    keys = [t["key"] for t in gpu_operator.values(env)["daemonsets"]["tolerations"]]
    assert keys == ["node-role.kubernetes.io/gpu", "gpuform.io/gpu-unhealthy"]


def test_cern_time_slicing_slice_4_is_declared() -> None:
    config_map = sharing.device_plugin_config_map(LOCAL)
    assert config_map is not None
    found = yaml.safe_load(config_map["data"]["slice-4"])
    assert found["version"] == "v1"
    assert found["sharing"] == {
        "timeSlicing": {
            "renameByDefault": True,
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
        }
    }
    pool = LOCAL.pool("t4-shared")
    assert sharing.pool_labels(LOCAL, pool)["nvidia.com/device-plugin.config"] == "slice-4"
    assert sharing.offered(LOCAL, pool) == {"nvidia.com/gpu.shared": 4}


def test_cern_mig_3g_and_two_2g_is_declared() -> None:
    config_map = sharing.mig_parted_config_map(LOCAL)
    assert config_map is not None
    configs = yaml.safe_load(config_map["data"]["config.yaml"])["mig-configs"]
    assert configs["3g.20gb-2x2g.10gb"] == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"2g.10gb": 2, "3g.20gb": 1}}
    ]
    pool = LOCAL.pool("a100-mig")
    assert sharing.mig_config_name(pool) == "3g.20gb-2x2g.10gb"
    assert sharing.offered(LOCAL, pool) == {"nvidia.com/mig-2g.10gb": 2, "nvidia.com/mig-3g.20gb": 1}
    assert gpu_operator.values(LOCAL)["mig"]["strategy"] == "mixed"


def requests(namespace: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for item in workloads.manifests(LOCAL):
        if item["metadata"]["namespace"] == namespace:
            spec: dict[str, Any] = item["spec"]["template"]["spec"]
            resources = spec["containers"][0]["resources"]["limits"]
            found[item["metadata"]["name"]] = {k: v for k, v in resources.items() if k != "memory"}
    return found


def test_cern_three_neighbours_on_time_slices_and_on_mig() -> None:
    share = {"nvidia.com/gpu.shared": "1"}
    assert requests("neighbours-time-sliced") == dict.fromkeys(("simulation", "inference", "notebook"), share)
    assert requests("neighbours-mig") == {
        "simulation": {"nvidia.com/mig-2g.10gb": "1"},
        "inference": {"nvidia.com/mig-3g.20gb": "1"},
        "notebook": {"nvidia.com/mig-2g.10gb": "1"},
    }


def test_cern_tf_gpu_pod() -> None:
    found = next(item for item in workloads.manifests(LOCAL) if item["metadata"]["name"] == "tf-gpu")
    container = found["spec"]["containers"][0]
    assert found["kind"] == "Pod"
    assert container["command"] == ["sleep", "inf"]
    assert container["resources"]["limits"]["nvidia.com/gpu.shared"] == "1"


def test_cern_whole_gpus() -> None:
    for name in ("a100-whole", "v100"):
        assert sharing.offered(LOCAL, LOCAL.pool(name)) == {"nvidia.com/gpu": 4}
