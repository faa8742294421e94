"""Cisco's article: taint and toleration, and three pods under the whole GPU's name (FACTS 1, rows 17-19)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.config import load, parse
from infra.model import offer
from infra.plan import gpu_operator, inventory, sharing

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


def test_cisco_node_with_its_toolkit_and_nvcc() -> None:
    """Toolkit 1.15.0 is declarable by naming what is accepted with it; nvcc is of CUDA 12.2."""
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
