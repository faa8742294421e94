"""Sharing by kind: the ConfigMaps, the labels that select from them, and what nodes offer."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuform.usage.status import sharing_detail
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.plan import gpu_operator, render, sharing
from tests.build.aws_environments import aws
from tests.build.environments import mig_configs, on, plugin

pytestmark = pytest.mark.unit

GPU, SMALL, BIG = "nvidia.com/gpu", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"
MEDIA = {"1g.24gb-me": 1, "1g.24gb+me.all": 1, "2g.48gb": 1}


def shared(*pools: dict[str, Any], **operator: str) -> Environment:
    return on("embedded", *pools, gpu_operator=operator)


def t4(**block: Any) -> dict[str, Any]:
    return {"machine": "g2.5xlarge", "sharing": block} if block else {"machine": "g2.5xlarge"}


def cut(layout: Any, machine: str = "g4.p1.40g") -> dict[str, Any]:
    return {"machine": machine, "sharing": {"kind": "mig", "layout": layout}}


def test_without_sharing_there_is_no_configuration_and_no_label() -> None:
    found = shared(t4(), {"machine": "m6i.xlarge"})
    assert sharing.device_plugin_config_map(found) is None
    assert sharing.mig_parted_config_map(found) is None
    assert sharing.pool_labels(found, found.pools[0]) == {
        "gpuform.io/environment": "e",
        "gpuform.io/pool": "p0",
    }


def test_one_key_per_way_of_sharing_and_a_default() -> None:
    slicing = {"kind": "time_slicing", "replicas": 4}
    found = shared(t4(**slicing), t4(**slicing), t4(kind="mps", replicas=2), t4(), mig_strategy="none")
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
    found = shared(t4(**block))
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
        found = shared(t4(kind="time_slicing", replicas=replicas))
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
        (cut({"2g.10gb": 2, "3g.20gb": 1}), "3g.20gb-2x2g.10gb", {"2g.10gb": 2, "3g.20gb": 1}),
        (cut({"1g.5gb": 7}), "all-1g.5gb", {"1g.5gb": 7}),
        (cut("all-1g.5gb"), "all-1g.5gb", {"1g.5gb": 7}),
        (cut("all-1g.5gb+me"), "all-1g.5gb.me", {"1g.5gb+me": 1}),
        (cut({"1g.5gb": 3}), "3x1g.5gb", {"1g.5gb": 3}),
        (cut({"1g.5gb": 3, "2g.10gb": 2}), "2x2g.10gb-3x1g.5gb", {"1g.5gb": 3, "2g.10gb": 2}),
        (cut(MEDIA, "g7e.2xlarge"), "2g.48gb-1g.24gb.me.all-1g.24gb-me", MEDIA),
    ],
)
def test_layouts_get_the_names_that_people_write(pool: dict[str, Any], name: str, entry: Any) -> None:
    found = shared(pool)
    assert sharing.mig_config_name(found.pools[0]) == name
    assert mig_configs(found) == {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        name: [{"devices": "all", "mig-enabled": True, "mig-devices": entry}],
    }


def test_a_mig_gpu_that_is_not_cut_is_told_so() -> None:
    found = shared({"machine": "g4.p4.40g"}, t4())
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
            {**t4(kind="time_slicing", replicas=2), "machine": "g1.4xlarge"},
            "mixed",
            {"nvidia.com/gpu.shared": 8},
        ),
        (cut({"3g.20gb": 1, "2g.10gb": 2}), "mixed", {SMALL: 2, BIG: 1}),
        (cut("all-1g.5gb", "g4.p4.40g"), "mixed", {"nvidia.com/mig-1g.5gb": 28}),
        (cut("all-1g.5gb", "g4.p4.40g"), "single", {"nvidia.com/gpu": 28}),
        (cut("all-1g.5gb+me"), "mixed", {"nvidia.com/mig-1g.5gb.me": 1}),
        ({"machine": "m6i.xlarge"}, "mixed", {}),
    ],
)
def test_what_a_node_offers(pool: dict[str, Any], strategy: str, offered: dict[str, int]) -> None:
    found = shared(pool, mig_strategy=strategy)
    assert allocatable.resources(found.pools[0]) == offered


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("node-role.kubernetes.io/gpu", "true"),
        ({"key": "node-role.kubernetes.io/gpu", "value": "present"}, "present"),
    ],
)
def test_the_gpu_taint_comes_by_itself_and_its_key_by_choice(declared: Any, value: str) -> None:
    own = {"key": "team", "value": "a", "effect": "NoExecute"}
    pools = ({**t4(), "taints": [own]}, {"machine": "m6i.xlarge", "taints": [own]})
    found = shared(*pools, gpu_taint=declared)
    gpu = {"key": "node-role.kubernetes.io/gpu", "value": value, "effect": "NoSchedule"}
    assert sharing.pool_taints(found, found.pools[0]) == [gpu, own]
    assert sharing.pool_taints(found, found.pools[1]) == [own]


def test_nodes_that_serve_several_owners_say_so_and_others_do_not() -> None:
    """The policy that forbids sharing among tenants reads the label."""
    found = shared({**cut("all-1g.5gb"), "trust": "multi"}, {**t4(), "trust": "multi"}, t4())
    expected = [sharing.pool_labels(found, pool).get("gpuform.io/trust") for pool in found.pools]
    assert expected == ["multi", "multi", None]


ONE, FOUR = "g4.p1.40g", "g4.p4.40g"
SEVEN: dict[str, Any] = {"kind": "mig", "layout": "all-1g.5gb"}
CERN: dict[str, Any] = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
MPS: dict[str, Any] = {"kind": "mps", "replicas": 3}


def env(*pools: tuple[str, dict[str, Any]], strategy: str = "mixed", work: Any = ()) -> Environment:
    named = [{"machine": machine, "sharing": block} for machine, block in pools]
    return on("embedded", *named, gpu_operator={"mig_strategy": strategy}, workloads=work)


def test_the_other_gpus_of_a_node_are_told_to_stay_whole() -> None:
    found = env((FOUR, {**CERN, "devices": [2, 0]}))
    name = "3g.20gb-2x2g.10gb-on-0-2-of-4"
    assert sharing.mig_config_name(found.pools[0]) == name
    assert mig_configs(found)[name] == [
        {"devices": [0, 2], "mig-enabled": True, "mig-devices": {"2g.10gb": 2, "3g.20gb": 1}},
        {"devices": [1, 3], "mig-enabled": False},
    ]
    assert allocatable.resources(found.pools[0]) == {GPU: 2, SMALL: 4, BIG: 2}


DIFFERENT = {
    "kind": "mig",
    "layouts": [
        {"devices": [2, 0], "layout": {"3g.20gb": 1, "1g.5gb": 1}},
        {"devices": [3], "layout": "all-1g.5gb"},
    ],
}


def test_gpus_of_a_node_may_be_cut_differently() -> None:
    found = env((FOUR, DIFFERENT))
    (pool,) = found.pools
    name = "3g.20gb-1g.5gb-on-0-2-all-1g.5gb-on-3-of-4"
    assert sharing.mig_config_name(pool) == name
    assert mig_configs(found)[name] == [
        {"devices": [0, 2], "mig-enabled": True, "mig-devices": {"1g.5gb": 1, "3g.20gb": 1}},
        {"devices": [3], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
        {"devices": [1], "mig-enabled": False},
    ]
    one = "nvidia.com/mig-1g.5gb"
    assert allocatable.resources(pool) == {GPU: 1, one: 9, BIG: 2}
    parts = allocatable.unit_parts(pool)  # of slices of 1/4 and of 1/7 the mean
    assert parts == {GPU: 1, one: pytest.approx((2 / 4 + 1) / 9), BIG: pytest.approx(3 / 4)}
    assert sum(parts[key] * count for key, count in allocatable.resources(pool).items()) == pytest.approx(4)
    assert sharing_detail(pool) == "1x 1g.5gb, 1x 3g.20gb on GPU 0, 2; 7x 1g.5gb on GPU 3"
    every = [*DIFFERENT["layouts"], {"devices": [1], "layout": {"7g.40gb": 1}}]
    (pool,) = env((FOUR, {"kind": "mig", "layouts": every})).pools
    assert GPU not in allocatable.resources(pool)


def test_one_name_on_two_models_names_the_devices_of_every_entry() -> None:
    small = {"kind": "mig", "layout": {"1g.10gb": 1}, "devices": [0], "name": "first"}
    large = {"kind": "mig", "layout": {"1g.10gb": 7}, "devices": [0], "name": "first"}
    found = mig_configs(env((FOUR, small), ("p4de.24xlarge", large)))["first"]
    assert [(entry["device-filter"], entry["devices"]) for entry in found] == [
        (["0x20B210DE"], [0]),
        (["0x20B210DE"], [1, 2, 3, 4, 5, 6, 7]),
        (["0x20F110DE"], [0]),
        (["0x20F110DE"], [1, 2, 3]),
    ]


def test_a_layout_may_have_a_name_of_its_own() -> None:
    """Bumble's name: the operator would overwrite an edit of NVIDIA's own ConfigMap."""
    bumble = {"kind": "mig", "layout": {"1g.5gb": 3, "2g.10gb": 2}, "name": "all-3x1g.5gb_2x2g.10gb"}
    found = env((ONE, bumble), (ONE, SEVEN), (ONE, {**SEVEN, "name": "all-1g.5gb"}), (FOUR, bumble))
    assert list(mig_configs(found)) == ["all-1g.5gb", "all-3x1g.5gb_2x2g.10gb", "all-disabled"]
    balanced = {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}
    found = env((ONE, {"kind": "mig", "layout": balanced, "name": "all-balanced"}))
    assert mig_configs(found)["all-balanced"][0]["mig-devices"] == balanced, "NVIDIA's own name for it"


def test_a_long_name_is_cut_and_keeps_its_own_end() -> None:
    wide = {"1g.24gb-me": 1, "1g.24gb+me.all": 1, "1g.24gb+gfx": 1, "1g.24gb": 1}
    blocks = [{"kind": "mig", "layout": wide, "devices": devices} for devices in ([0], [1])]
    names = [sharing.mig_config_name(env(("g7e.12xlarge", block)).pools[0]) for block in blocks]
    assert names[0] != names[1]
    assert all(name and len(name) <= 63 for name in names)


def test_shares_of_slices_have_one_entry_per_kind_of_slice() -> None:
    found = env((ONE, {**CERN, "share": {"replicas": 2}}), (ONE, CERN))
    key = "slice-2-mig-2g.10gb_3g.20gb"
    assert plugin(found)[key] == {
        "version": "v1",
        "flags": {"migStrategy": "mixed"},
        "sharing": {
            "timeSlicing": {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": SMALL, "replicas": 2}, {"name": BIG, "replicas": 2}],
            }
        },
    }
    shown = [sharing.pool_labels(found, pool)["nvidia.com/device-plugin.config"] for pool in found.pools]
    assert shown == [key, "default"]
    assert allocatable.resources(found.pools[0]) == {f"{SMALL}.shared": 4, f"{BIG}.shared": 2}


@pytest.mark.parametrize(
    ("share", "key", "offered", "product"),
    [
        ({}, "slice-2-mig-single", {"nvidia.com/gpu.shared": 14}, "-MIG-1g.5gb"),
        ({"rename": False}, "slice-2-keep-name-mig-single", {GPU: 14}, "-MIG-1g.5gb-SHARED"),
    ],
)
def test_under_single_a_slice_is_shared_as_a_gpu(
    share: dict[str, Any], key: str, offered: dict[str, int], product: str
) -> None:
    found = env((ONE, {**SEVEN, "share": {"replicas": 2, **share}}), strategy="single")
    (pool,) = found.pools
    resources = plugin(found)[key]["sharing"]["timeSlicing"]["resources"]
    assert resources == [{"name": GPU, "replicas": 2}]
    assert allocatable.resources(pool) == offered
    assert allocatable.products(pool) == (f"NVIDIA-A100-PCIE-40GB{product}",)


def test_a_plus_stands_in_no_key_and_a_long_key_is_cut() -> None:
    media = {"kind": "mig", "layout": {"1g.5gb+me": 1}, "share": {"replicas": 2}}
    assert list(plugin(env((ONE, media)))) == ["default", "slice-2-mig-1g.5gb.me"]
    wide = {"1g.24gb-me": 1, "1g.24gb+me.all": 1, "1g.24gb+gfx": 1, "1g.24gb": 1}
    keep = {"replicas": 2, "rename": False, "fail_requests_greater_than_one": False}
    found = env(("g7e.2xlarge", {"kind": "mig", "layout": wide, "share": keep}))
    assert sorted(map(len, plugin(found))) == [len("default"), 63]


def test_where_strategies_differ_every_key_says_its_own_and_the_operator_none() -> None:
    found = env(
        (ONE, CERN), (ONE, {**SEVEN, "strategy": "single"}), ("g1.xlarge", MPS), (FOUR, {"kind": "exclusive"})
    )
    assert {key: config["flags"]["migStrategy"] for key, config in plugin(found).items()} == {
        "default": "mixed",
        "mig-single": "single",
        "mps-3": "none",
    }
    shown = [sharing.pool_labels(found, pool)["nvidia.com/device-plugin.config"] for pool in found.pools]
    assert shown == ["default", "mig-single", "mps-3", "default"]
    assert gpu_operator.values(found)["mig"] == {"strategy": ""}
    assert [pool.strategy for pool in found.pools] == ["mixed", "single", "none", "mixed"]
    pools = list(yaml.safe_load_all(render.render(found)["pools.yaml"]))
    assert [pool["mig_strategy"] for pool in pools] == ["mixed", "single", "none", "mixed"]


def test_whole_gpus_alone_need_a_configuration_where_strategies_differ() -> None:
    alone = env((ONE, CERN), (ONE, {"kind": "exclusive"}))
    assert sharing.device_plugin_config_map(alone) is None
    assert gpu_operator.values(alone)["mig"] == {"strategy": "mixed"}
    other = env((ONE, {**SEVEN, "strategy": "single"}), (ONE, {"kind": "exclusive"}), strategy="none")
    assert list(plugin(other)) == ["default", "mig-single"]


def test_mps_is_told_with_the_memory_that_each_client_has() -> None:
    found = env(("g2.5xlarge", {"kind": "mps", "replicas": 4}), strategy="none")
    (pool,) = yaml.safe_load_all(render.render(found)["pools.yaml"])
    assert pool["mps"] == {"memory_mib_per_client": 3840}
    mixed = aws({"gpu": {"models": ["L4", "A10G"], "count": 1}, "sharing": {"kind": "mps", "replicas": 4}})
    assert allocatable.mps_memory_mib(mixed.pools[0]) == 23028 // 4


def test_every_resource_has_its_key_in_a_quota() -> None:
    found = env((FOUR, {**CERN, "devices": [0], "share": {"replicas": 2}}))
    keys = [allocatable.quota_key(name) for name in allocatable.gpu_resources(found.pools[0])]
    assert keys == [f"requests.{GPU}", f"requests.{SMALL}.shared", f"requests.{BIG}.shared"]


def test_parts_of_a_gpu_are_its_slices_and_their_shares() -> None:
    def parts(block: dict[str, Any], strategy: Any = "mixed") -> dict[str, float]:
        return allocatable.unit_parts(env((FOUR, block), strategy=strategy).pools[0])

    assert parts(CERN) == {SMALL: pytest.approx(2 / 7), BIG: pytest.approx(3 / 7)}
    some = parts({**CERN, "devices": [0], "share": {"replicas": 2}})
    assert some == {f"{SMALL}.shared": pytest.approx(1 / 7), f"{BIG}.shared": pytest.approx(3 / 14), GPU: 1.0}
    assert parts({**SEVEN, "share": {"replicas": 2}}, "single") == {
        "nvidia.com/gpu.shared": pytest.approx(1 / 14)
    }
    assert parts(MPS, "none") == {GPU: pytest.approx(1 / 3)}
    assert parts({"kind": "exclusive"}) == {GPU: 1.0}


def test_only_a_chosen_name_is_told_apart_by_what_it_stands_for() -> None:
    def content(**more: Any) -> str | None:
        return sharing.layout_content(env((FOUR, {**SEVEN, **more})).pools[0])

    assert content() is None
    first = content(name="ours")
    assert first is not None
    assert len(first) == 8
    assert content(name="ours", share={"replicas": 2}) == first, "no other layout"
    assert len({first, content(name="ours", layout={"1g.5gb": 6}), content(name="ours", devices=[0])}) == 3


def test_shares_of_slices_are_at_stake_where_the_layout_stays() -> None:
    def change(**more: Any) -> dict[str, Any] | None:
        found = env((FOUR, {**SEVEN, **more}))
        return sharing.device_plugin_change(found, found.pools[0])

    key, small = "nvidia.com/device-plugin.config", "nvidia.com/mig-1g.5gb.shared"
    assert change(share={"replicas": 2}) == {"label": key, "offers": {small: 56}, "layout": "all-1g.5gb"}
    named = change(share={"replicas": 2}, name="ours")
    assert named is not None
    assert (named["layout"], len(named["content"])) == ("ours", 8)


SINGLE = {**SEVEN, "strategy": "single"}
WHOLE_TOO = {"kind": "mig", "layout": "all-1g.5gb", "devices": [0]}
SLICES: list[tuple[dict[str, Any], dict[str, Any], int | None]] = [
    (SEVEN, {"count": 1}, None),
    *((SEVEN, {"kind": kind, "count": 2}, 2) for kind in ("pod", "deployment", "job", "inference")),
    (SEVEN, {"kind": "notebook", "editor": "jupyterlab", "user": "a", "count": 3}, 3),
    (SINGLE, {"count": 4}, 4),
    ({"kind": "mig", "layout": {"7g.40gb": 1}}, {"count": 4}, 4),
    ({"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}, {"slice": "2g.10gb", "count": 2}, 2),
    ({**SEVEN, "share": {"replicas": 2, "fail_requests_greater_than_one": False}}, {"count": 2}, 2),
    ({"kind": "dra", "layout": "all-1g.5gb"}, {"count": 2}, 2),
    ({"kind": "dra"}, {"count": 2}, None),
    (WHOLE_TOO, {"count": 3}, None),
    (WHOLE_TOO, {"slice": "1g.5gb", "count": 3}, 3),
    ({"kind": "exclusive"}, {"count": 4}, None),
]


@pytest.mark.parametrize(("block", "work", "number"), SLICES)
def test_one_process_uses_one_slice(block: dict[str, Any], work: dict[str, Any], number: int | None) -> None:
    found = [text for text in warnings(env((FOUR, block), work=[{"pool": "p0", **work}])) if ".count" in text]
    fact = f"a CUDA process uses one MIG slice, the first of the {number} in its container"
    remedy = "request 1, with more pods or a larger profile, or start one process for each slice"
    assert found == (
        [] if number is None else [f"workloads[0].count: {fact}; {remedy} (CUDA_VISIBLE_DEVICES)"]
    )
