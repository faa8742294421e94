"""Cisco's ways to share a GPU among processes: four as pools, the fifth is unsupported (FACTS 1, row 19)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.model.environment import Environment
from infra.model.errors import InputError
from infra.plan import sharing

pytestmark = pytest.mark.unit

KINDS: dict[str, dict[str, Any]] = {
    "single-process": {"kind": "exclusive"},
    "mps": {"kind": "mps", "replicas": 3},
    "time-slicing": {"kind": "time_slicing", "replicas": 3, "rename": False},
    "mig": {"kind": "mig", "layout": "all-1g.5gb", "strategy": "mixed"},
}


def environment(kinds: dict[str, dict[str, Any]]) -> Environment:
    """All in one cluster, under the article's operator-wide ``migStrategy: none``."""
    pools = [
        {"name": name, "machine": "g4.p1.40g", "nodes": 1, "sharing": block} for name, block in kinds.items()
    ]
    operator = {"mig_strategy": "none"}
    return parse({"name": "c", "cluster": {"kind": "embedded"}, "gpu_operator": operator, "pools": pools})


def test_cisco_row_19_each_kind_is_a_pool_of_one_cluster() -> None:
    env = environment(KINDS)
    offered = {pool.name: sharing.offered(env, pool) for pool in env.pools}
    assert offered == {
        "single-process": {"nvidia.com/gpu": 1},
        "mps": {"nvidia.com/gpu": 3},
        "time-slicing": {"nvidia.com/gpu": 3},
        "mig": {"nvidia.com/mig-1g.5gb": 7},
    }
    config_map = sharing.device_plugin_config_map(env)
    assert config_map is not None
    configs = {
        pool.name: yaml.safe_load(
            config_map["data"][sharing.pool_labels(env, pool)["nvidia.com/device-plugin.config"]]
        )
        for pool in env.pools
    }
    assert {name: found["flags"]["migStrategy"] for name, found in configs.items()} == {
        **dict.fromkeys(("single-process", "mps", "time-slicing"), "none"),
        "mig": "mixed",
    }
    assert {name: list(found.get("sharing", {})) for name, found in configs.items()} == {
        "single-process": [],
        "mps": ["mps"],
        "time-slicing": ["timeSlicing"],
        "mig": [],
    }


def test_cisco_row_19_vgpu_is_the_hypervisors() -> None:
    with pytest.raises(InputError) as refused:
        environment({"vgpu": {"kind": "vgpu", "replicas": 4}})
    assert refused.value.path == "pools[0].sharing.kind"
    assert refused.value.fact.startswith("the hypervisor creates a vGPU")
