"""Pools that are selected by labels of discovery: those that their own sharing changes find no node later."""

from __future__ import annotations

from typing import Any

import pytest

from infra.model.base.errors import InputError
from tests.plan.environments import on

pytestmark = pytest.mark.unit

T4 = {"machine": "g2.5xlarge"}
A100: dict[str, Any] = {"machine": "g4.p2.40g"}
SLICED = {"kind": "time_slicing", "replicas": 4}
KEPT_NAME = {**SLICED, "rename": False}
SEVEN = {"kind": "mig", "layout": "all-1g.5gb"}
SINGLE = {**SEVEN, "strategy": "single"}
SHARED = {**SINGLE, "share": {"replicas": 2, "rename": False}}
PRODUCT, COUNT, REPLICAS = (f"nvidia.com/gpu.{name}" for name in ("product", "count", "replicas"))
WAY, STRATEGY = "nvidia.com/gpu.sharing-strategy", "nvidia.com/mig.strategy"
CHANGED = "so the next update would not find its nodes; select by a label of your own"


def select(pool: dict[str, Any], key: str, value: str, **operator: Any) -> str:
    """The error; empty if the selector is accepted."""
    try:
        on("existing", {"name": "p", **pool, "selector": {key: value}}, gpu_operator=operator)
    except InputError as error:
        return str(error).removeprefix(f"pools[0].selector.{key}: ")
    return ""


@pytest.mark.parametrize(
    ("pool", "sharing", "key", "before", "after"),
    [
        (T4, KEPT_NAME, PRODUCT, "Tesla-T4", "Tesla-T4-SHARED"),
        (T4, {"kind": "mps", "replicas": 4}, PRODUCT, "Tesla-T4", "Tesla-T4-SHARED"),
        (A100, SINGLE, PRODUCT, "NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb"),
        (A100, SHARED, PRODUCT, "NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb-SHARED"),
        (A100, SINGLE, COUNT, "2", "14"),
        (T4, SLICED, REPLICAS, "1", "4"),
        (A100, SHARED, REPLICAS, "1", "2"),
        (A100, SEVEN, REPLICAS, "1", "0"),
        (T4, SLICED, WAY, "none", "time-slicing"),
        (T4, {"kind": "mps", "replicas": 4}, WAY, "none", "mps"),
        (A100, SHARED, WAY, "none", "time-slicing"),
        (A100, SINGLE, STRATEGY, "mixed", "single"),
    ],
)
def test_a_label_that_sharing_changes_selects_only_by_its_later_value(
    pool: dict[str, Any], sharing: dict[str, Any], key: str, before: str, after: str
) -> None:
    shared = {**pool, "sharing": sharing}
    assert select(shared, key, before) == f"the pool's sharing changes {before!r} to {after}, {CHANGED}"
    assert select(shared, key, after) == ""
    if key != STRATEGY:
        assert select(pool, key, before) == ""
        assert select(pool, key, after).startswith(f"no node of the pool has {after!r}; use {before}")
        assert select(shared, key, f"{after}9").endswith("; select by a label of your own")


@pytest.mark.parametrize("name", ["memory", "multiprocessors", "slices.gi", "slices.ci", "engines.ofa"])
def test_a_label_that_strategy_single_sets_from_a_slice_selects_no_pool(name: str) -> None:
    key, fact = f"nvidia.com/gpu.{name}", "the pool's sharing changes '40536' to that of a slice"
    assert select({**A100, "sharing": SINGLE}, key, "40536") == f"{fact}, {CHANGED}"
    assert select({**A100, "sharing": SEVEN}, key, "40536") == ""
    assert select(A100, key, "40536", mig_strategy="single") == ""


@pytest.mark.parametrize(
    ("pool", "key", "value"),
    [
        ({**T4, "sharing": SLICED}, PRODUCT, "Tesla-T4"),
        ({**A100, "sharing": SEVEN}, PRODUCT, "NVIDIA-A100-PCIE-40GB"),
        ({**A100, "sharing": SEVEN}, COUNT, "2"),
        ({**A100, "sharing": {**SEVEN, "devices": [0]}}, REPLICAS, "1"),
        ({**A100, "sharing": SEVEN}, WAY, "none"),
        ({**A100, "sharing": {"kind": "dra"}}, PRODUCT, "NVIDIA-A100-PCIE-40GB"),
        ({**T4, "sharing": KEPT_NAME}, "nvidia.com/gpu.family", "turing"),
    ],
)
def test_what_sharing_leaves_as_it_is_selects_a_pool(pool: dict[str, Any], key: str, value: str) -> None:
    assert select(pool, key, value) == ""


@pytest.mark.parametrize(
    ("key", "value"), [(PRODUCT, "Tesla-T4"), (PRODUCT, "Tesla-T4-SHARED"), (REPLICAS, "4"), (WAY, "mps")]
)
def test_the_clusters_own_operator_may_share_them(key: str, value: str) -> None:
    assert select(T4, key, value, mode="existing") == ""
