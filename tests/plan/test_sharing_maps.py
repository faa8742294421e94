"""The two ConfigMaps, the labels that select from them, and what a node offers."""

from __future__ import annotations

from typing import Any

import pytest

from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.plan import sharing
from tests.plan.environments import mig_configs, on, plugin

pytestmark = pytest.mark.unit


def env(*pools: dict[str, Any], **operator: str) -> Environment:
    return on("embedded", *pools, gpu_operator=operator)


def t4(**block: Any) -> dict[str, Any]:
    return {"machine": "g2.5xlarge", "sharing": block} if block else {"machine": "g2.5xlarge"}


def mig(layout: Any, machine: str = "g4.p1.40g") -> dict[str, Any]:
    return {"machine": machine, "sharing": {"kind": "mig", "layout": layout}}


def test_without_sharing_there_is_no_configuration_and_no_label() -> None:
    found = env(t4(), {"machine": "m6i.xlarge"})
    assert sharing.device_plugin_config_map(found) is None
    assert sharing.mig_parted_config_map(found) is None
    assert sharing.pool_labels(found, found.pools[0]) == {
        "gpuform.io/environment": "e",
        "gpuform.io/pool": "p0",
    }


def test_one_key_per_way_of_sharing_and_a_default() -> None:
    slicing = {"kind": "time_slicing", "replicas": 4}
    found = env(t4(**slicing), t4(**slicing), t4(kind="mps", replicas=2), t4(), mig_strategy="none")
    assert list(plugin(found)) == ["default", "mps-2", "slice-4"]
    keys = [sharing.pool_labels(found, p)["nvidia.com/device-plugin.config"] for p in found.pools]
    assert keys == ["slice-4", "slice-4", "mps-2", "default"]


@pytest.mark.parametrize(
    ("rename", "fail", "key"),
    [
        (True, True, "slice-4"),
        (True, False, "slice-4-allow-several"),
        (False, True, "slice-4-keep-name"),
        (False, False, "slice-4-keep-name-allow-several"),
    ],
)
def test_every_way_of_time_slicing_has_its_key(rename: bool, fail: bool, key: str) -> None:
    block = {"kind": "time_slicing", "replicas": 4, "rename": rename, "fail_requests_greater_than_one": fail}
    found = env(t4(**block))
    assert plugin(found)[key] == {
        "version": "v1",
        "flags": {"migStrategy": "mixed"},
        "sharing": {
            "timeSlicing": {
                "renameByDefault": rename,
                "failRequestsGreaterThanOne": fail,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
            }
        },
    }


def test_a_changed_configuration_has_another_name_and_the_same_one_the_same() -> None:
    def name(replicas: int) -> str:
        found = env(t4(kind="time_slicing", replicas=replicas))
        config_map = sharing.device_plugin_config_map(found)
        assert config_map is not None
        assert config_map["metadata"]["namespace"] == "gpu-operator"
        return str(config_map["metadata"]["name"])

    assert name(4) == name(4)
    assert name(4) != name(8)
    prefix, _, digest = name(4).rpartition("-")
    assert prefix == "nvidia-time-slicing-config"
    assert len(digest) == 8


@pytest.mark.parametrize(
    ("pool", "name", "entry"),
    [
        (mig({"2g.10gb": 2, "3g.20gb": 1}), "3g.20gb-2x2g.10gb", {"2g.10gb": 2, "3g.20gb": 1}),
        (mig({"1g.5gb": 7}), "all-1g.5gb", {"1g.5gb": 7}),
        (mig("all-1g.5gb"), "all-1g.5gb", {"1g.5gb": 7}),
        (mig("all-1g.5gb+me"), "all-1g.5gb.me", {"1g.5gb+me": 1}),
        (mig({"1g.5gb": 3}), "3x1g.5gb", {"1g.5gb": 3}),
        (mig({"1g.5gb": 3, "2g.10gb": 2}), "2x2g.10gb-3x1g.5gb", {"1g.5gb": 3, "2g.10gb": 2}),
        (
            mig({"1g.24gb-me": 1, "1g.24gb+me.all": 1, "2g.48gb": 1}, "g7e.2xlarge"),
            "2g.48gb-1g.24gb.me.all-1g.24gb-me",
            {"1g.24gb-me": 1, "1g.24gb+me.all": 1, "2g.48gb": 1},
        ),
    ],
)
def test_layouts_get_the_names_that_people_write(pool: dict[str, Any], name: str, entry: Any) -> None:
    found = env(pool)
    assert sharing.mig_config_name(found.pools[0]) == name
    assert mig_configs(found) == {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        name: [{"devices": "all", "mig-enabled": True, "mig-devices": entry}],
    }


def test_a_mig_gpu_that_is_not_cut_is_told_so() -> None:
    found = env({"machine": "g4.p4.40g"}, t4())
    assert sharing.mig_config_name(found.pools[0]) == "all-disabled"
    assert sharing.mig_config_name(found.pools[1]) is None
    assert list(mig_configs(found)) == ["all-disabled"]


@pytest.mark.parametrize(
    ("pool", "strategy", "offered"),
    [
        (t4(), "mixed", {"nvidia.com/gpu": 1}),
        (t4(kind="time_slicing", replicas=4), "mixed", {"nvidia.com/gpu.shared": 4}),
        (t4(kind="time_slicing", replicas=3, rename=False), "mixed", {"nvidia.com/gpu": 3}),
        (t4(kind="mps", replicas=5), "single", {"nvidia.com/gpu": 5}),
        ({"machine": "g1.4xlarge"}, "mixed", {"nvidia.com/gpu": 4}),
        (
            {"machine": "g1.4xlarge", "sharing": {"kind": "time_slicing", "replicas": 2}},
            "mixed",
            {"nvidia.com/gpu.shared": 8},
        ),
        (
            mig({"3g.20gb": 1, "2g.10gb": 2}),
            "mixed",
            {"nvidia.com/mig-2g.10gb": 2, "nvidia.com/mig-3g.20gb": 1},
        ),
        (mig("all-1g.5gb", "g4.p4.40g"), "mixed", {"nvidia.com/mig-1g.5gb": 28}),
        (mig("all-1g.5gb", "g4.p4.40g"), "single", {"nvidia.com/gpu": 28}),
        (mig("all-1g.5gb+me"), "mixed", {"nvidia.com/mig-1g.5gb.me": 1}),
        ({"machine": "m6i.xlarge"}, "mixed", {}),
    ],
)
def test_what_a_node_offers(pool: dict[str, Any], strategy: str, offered: dict[str, int]) -> None:
    found = env(pool, mig_strategy=strategy)
    assert allocatable.resources(found.pools[0]) == offered


def test_the_gpu_taint_comes_by_itself_and_its_key_by_choice() -> None:
    own = {"key": "team", "value": "a", "effect": "NoExecute"}
    pools = ({**t4(), "taints": [own]}, {"machine": "m6i.xlarge", "taints": [own]})
    found = env(*pools, gpu_taint="node-role.kubernetes.io/gpu")
    gpu = {"key": "node-role.kubernetes.io/gpu", "value": "true", "effect": "NoSchedule"}
    assert sharing.pool_taints(found, found.pools[0]) == [gpu, own]
    assert sharing.pool_taints(found, found.pools[1]) == [own]


def test_nodes_that_serve_several_owners_say_so_and_others_do_not() -> None:
    """The policy that forbids sharing among tenants reads the label."""
    found = env({**mig("all-1g.5gb"), "trust": "multi"}, {**t4(), "trust": "multi"}, t4())
    expected = [sharing.pool_labels(found, pool).get("gpuform.io/trust") for pool in found.pools]
    assert expected == ["multi", "multi", None]
