"""Cisco's article: taint and toleration, and three pods under the whole GPU's name (FACTS 1, rows 17-19)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.config import load, parse
from infra.model import offer
from infra.plan import device_plugin, gpu_operator, inventory, sharing

pytestmark = pytest.mark.unit

LOCAL = load(Path(__file__).parents[2] / "Pulumi.local.yaml")
POOL = LOCAL.pool("g4dn-shared")


def test_cisco_time_slicing_of_three_is_not_renamed() -> None:
    config_map = sharing.device_plugin_config_map(LOCAL)
    assert config_map is not None
    key = sharing.pool_labels(LOCAL, POOL)["nvidia.com/device-plugin.config"]
    slicing = yaml.safe_load(config_map["data"][key])["sharing"]["timeSlicing"]
    assert slicing == {
        "renameByDefault": False,
        "failRequestsGreaterThanOne": False,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 3}],
    }
    assert sharing.offered(LOCAL, POOL) == {"nvidia.com/gpu": 3}


def test_cisco_shared_and_not_renamed_shows_in_the_product() -> None:
    assert offer.products("mixed", POOL) == ("Tesla-T4-SHARED",)
    assert offer.products("mixed", LOCAL.pool("t4-shared")) == ("Tesla-T4",)


def test_cisco_taint_and_toleration() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    assert sharing.pool_taints(LOCAL, POOL) == [taint]
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert toleration in gpu_operator.values(LOCAL)["daemonsets"]["tolerations"]


# As in the article: the device plugin by its own chart, on node images with driver and toolkit.
SHARINGS = {
    "any": {"kind": "time_slicing", "replicas": 3, "rename": False, "fail_requests_greater_than_one": False},
    "mps": {"kind": "mps", "replicas": 3},
    "alone": {"kind": "exclusive"},
}
PLUGIN = parse(
    {
        "name": "cisco",
        "cluster": {"kind": "embedded"},
        "gpu_operator": {"mode": "device_plugin"},
        "pools": [
            {"name": name, "machine": "g4dn.xlarge", "nodes": 1, "sharing": kind}
            for name, kind in SHARINGS.items()
        ],
    }
)


def test_cisco_row_17_the_plugin_is_kept_to_gpu_nodes() -> None:
    values = device_plugin.values(PLUGIN)
    required = values["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [term["matchExpressions"] for term in required["nodeSelectorTerms"]]
    assert terms == [
        [{"key": "feature.node.kubernetes.io/pci-10de.present", "operator": "In", "values": ["true"]}],
        [{"key": "feature.node.kubernetes.io/cpu-model.vendor_id", "operator": "In", "values": ["NVIDIA"]}],
        [{"key": "nvidia.com/gpu", "operator": "In", "values": ["true"]}],
    ]
    assert values["nodeSelector"] == {"nvidia.com/gpu": "true"}
    assert values["tolerations"] == [{"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"}]
    for pool in PLUGIN.pools:
        assert sharing.pool_labels(PLUGIN, pool)["nvidia.com/gpu"] == "true"
        assert sharing.pool_taints(PLUGIN, pool)[0]["value"] == "true"


def test_cisco_row_19_one_process_mps_and_time_slicing() -> None:
    """MIG needs the operator's MIG manager, vGPU is refused: tests/config has both refusals."""
    config_map = sharing.device_plugin_config_map(PLUGIN)
    assert config_map is not None
    found = {
        pool.name: yaml.safe_load(
            config_map["data"][sharing.pool_labels(PLUGIN, pool)["nvidia.com/device-plugin.config"]]
        )
        for pool in PLUGIN.pools
    }
    assert {config["flags"]["migStrategy"] for config in found.values()} == {"none"}
    assert found["any"]["sharing"]["timeSlicing"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 3}]
    assert found["mps"]["sharing"]["mps"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 3}]
    assert "sharing" not in found["alone"]
    offered = {pool.name: sharing.offered(PLUGIN, pool) for pool in PLUGIN.pools}
    three, one = {"nvidia.com/gpu": 3}, {"nvidia.com/gpu": 1}
    assert offered == {"any": three, "mps": three, "alone": one}


def test_cisco_node_with_its_toolkit_and_nvcc() -> None:
    """Toolkit 1.15.0 needs its acknowledgements; nvcc is of CUDA 12.2."""
    env = parse(
        {
            "name": "cisco",
            "cluster": {
                "kind": "hosts",
                "driver": {"source": "nvidia", "version": "550.163.01"},
                "toolkit": {"version": "1.15.0"},
                "acknowledge": ["CVE-2024-0132", "CVE-2025-23359", "CVE-2025-23266"],
                "cuda": "12.2",
            },
            "pools": [{"name": "t4", "hosts": ["node"], "gpu": {"models": ["T4"], "count": 1}}],
        }
    )
    host = inventory.inventory(env, {})["_meta"]["hostvars"]["node"]
    assert host["validate_inventory_gpu"] == {"model": "T4", "product": "Tesla T4", "count": 1}
    assert host["nvidia_container_toolkit_version"] == "1.15.0"
    assert host["nvidia_container_toolkit_acknowledge"] == list(env.resolved()["cluster"]["acknowledge"])
    assert host["cuda_toolkit_version"] == "12.2"
