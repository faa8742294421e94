"""A GPU chosen by what a workload requires (FACTS 1, row 22: heterogeneous clusters)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.pool import allocatable
from infra.plan import workloads
from tests.config.edits import message
from tests.plan.aws_environments import aws
from tests.plan.environments import declared, gpus, on

pytestmark = pytest.mark.unit


POOLS: dict[str, dict[str, Any]] = {
    "t4": {"machine": "g2.5xlarge"},
    "a40": {"machine": "g4.p4.40g"},
    "a80": {"machine": "p4de.24xlarge"},
    "h": {"machine": "p5.48xlarge"},
    "h1": {"gpu": {"models": ["H100-SXM"], "count": 1}, "machine": None},
    "cut": {"machine": "g4.p1.40g", "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}},
    "sevenths": {"machine": "p4d.24xlarge", "sharing": {"kind": "mig", "layout": "all-1g.5gb"}},
    "sliced": {"machine": "g4dn.xlarge", "sharing": {"kind": "time_slicing", "replicas": 3, "rename": False}},
    "renamed": {"machine": "g4dn.xlarge", "sharing": {"kind": "time_slicing", "replicas": 3}},
    "cpu": {"machine": "m6i.xlarge"},
}


def made(*names: str, **work: Any) -> dict[str, Any]:
    pools = [{"name": name, **{k: v for k, v in POOLS[name].items() if v is not None}} for name in names]
    spec: dict[str, Any] = workloads.manifests(on("embedded", *pools, workloads=[work]))[0]["spec"]
    return spec


def terms(spec: dict[str, Any]) -> list[dict[str, list[str]]]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found = []
    for term in required["nodeSelectorTerms"]:
        assert all(matchexpression["operator"] == "In" for matchexpression in term["matchExpressions"])
        found.append({item["key"]: item["values"] for item in term["matchExpressions"]})
    return found


@pytest.mark.parametrize(
    ("pools", "need", "chosen"),
    [
        (["t4", "a40", "a80", "h", "cpu"], {"memory_gib": 16}, ["a40", "a80", "h"]),
        (["t4", "a40", "a80", "h"], {"memory_gib": 40}, ["a40", "a80", "h"]),
        (["t4", "a40", "a80", "h"], {"memory_gib": 41}, ["a80", "h"]),
        (["a80", "h"], {"memory_gib": 80}, ["a80"]),  # an H100 has 79.6 GiB
        (["t4", "a40", "h"], {"compute": "8.0"}, ["a40", "h"]),
        (["t4", "a40", "h"], {"compute": 8.1}, ["h"]),
        (["t4", "a40", "h"], {"family": "ampere"}, ["a40"]),
        (["a40", "a80", "h"], {"nvlink": True}, ["a80", "h"]),
        (["a80", "h1"], {"nvlink": True}, ["a80"]),  # a single H100 on its node has no NVLink peer
        (["a40", "a80", "h"], {"nvlink": True, "family": "ampere"}, ["a80"]),
        (["sliced", "h"], {"compute": "7.0"}, ["h", "sliced"]),  # both give the same resource name
    ],
)
def test_the_pools_whose_gpus_satisfy(pools: list[str], need: dict[str, Any], chosen: list[str]) -> None:
    spec = made(*pools, gpu=need)
    assert terms(spec) == [{"gpuform.io/pool": chosen}]
    assert gpus({"kind": "Pod", "spec": spec}) == {"nvidia.com/gpu": "1"}
    assert [toleration["key"] for toleration in spec["tolerations"]] == ["nvidia.com/gpu"]
    assert "nodeSelector" not in spec


def test_a_slice_counts_with_its_own_memory() -> None:
    spec = made("t4", "cut", gpu={"memory_gib": 19})
    assert gpus({"kind": "Pod", "spec": spec}) == {"nvidia.com/mig-3g.20gb": "1"}
    assert terms(spec) == [{"gpuform.io/pool": ["cut"]}]
    with pytest.raises(
        InputError, match=r"no pool has 20 GiB or more; .*mig-3g\.20gb of pool cut .*: 19\.5 GiB"
    ):
        made("t4", "cut", gpu={"memory_gib": 20})  # NVML reports 19.5 GiB


def test_a_slice_has_no_nvlink() -> None:
    with pytest.raises(InputError, match=r"\(A100-SXM4-40GB\): a MIG slice has no NVLink"):
        made("sevenths", gpu={"nvlink": True})


def test_of_several_slices_the_named_one() -> None:
    spec = made("cut", gpu={"family": "ampere"}, slice="2g.10gb", count=2)
    assert gpus({"kind": "Pod", "spec": spec}) == {"nvidia.com/mig-2g.10gb": "2"}
    with pytest.raises(InputError, match=r"no pool has a slice 1g\.5gb with .*; no pool offers it"):
        made("cut", gpu={"family": "ampere"}, slice="1g.5gb")


def test_two_names_are_no_choice() -> None:
    with pytest.raises(InputError) as caught:
        made("renamed", "t4", gpu={"family": "turing"})
    assert str(caught.value) == (
        "workloads[0].gpu: matching devices have different resource names, and a pod requests one: "
        "pool renamed nvidia.com/gpu.shared, pool t4 nvidia.com/gpu; name the pool instead, or the slice"
    )


def test_a_pool_of_several_models_is_taken_where_discovery_tells_them_apart() -> None:
    mixed = {"name": "mixed", "gpu": {"models": ["T4", "A100-40GB", "L4"], "count": 1}}
    large = {"name": "large", "gpu": {"models": ["A100-80GB"], "count": 8}}
    env = on("existing", mixed, large, workloads=[{"gpu": {"memory_gib": 40}}])
    assert terms(workloads.manifests(env)[0]["spec"]) == [
        {"gpuform.io/pool": ["large"]},
        {"gpuform.io/pool": ["mixed"], "nvidia.com/gpu.product": ["NVIDIA-A100-PCIE-40GB"]},
    ]


def test_a_slice_has_the_memory_that_nvml_reports() -> None:
    """An H200 reports 16 GiB for 1g.18gb; an eighth of its memory is 17.5 GiB."""
    sharing = {"kind": "mig", "layout": "all-1g.18gb"}
    pool = {"name": "h200", "gpu": {"models": ["H200"], "count": 1}, "sharing": sharing}
    assert on("existing", pool, workloads=[{"gpu": {"memory_gib": 16}}])
    text = message(declared("existing", pool, workloads=[{"gpu": {"memory_gib": 17}}]))
    assert re.search(r"no pool has 17 GiB or more; .*mig-1g\.18gb of pool h200 .*: 16 GiB", text)


def test_on_aws_a_pool_is_not_judged_by_gpus_that_nobody_sells() -> None:
    """A30 and A100 PCIe match, too, but no EC2 type has them."""
    asked = {"memory_gib": 24, "nvlink": False, "compute": "8.0", "count": 1}
    work = {"name": "w", "kind": "pod", "gpu": {"memory_gib": 20}, "image": "a:1"}
    for size in ({"nodes": 1}, {"elastic": {"max": {"cpu": 1000}}}):
        env = aws({"gpu": asked, "sharing": {"kind": "mps", "replicas": 2}, **size}, workloads=[work])
        assert [gpu.name for gpu in env.pools[0].gpus] == ["L40S", "RTX-PRO-6000"]
        assert allocatable.mps_memory_mib(env.pools[0]) == 46068 // 2
        assert parse(env.resolved()).pools == env.pools


def test_a_pool_whose_next_node_may_lack_it_says_so() -> None:
    pool = {"gpu": {"models": ["L4", "L40S"], "count": 1}, "elastic": {"max": {"cpu": 1000}}}
    with pytest.raises(InputError) as caught:
        aws(pool, workloads=[{"name": "w", "kind": "pod", "gpu": {"memory_gib": 40}, "image": "a:1"}])
    assert caught.value.remedy == (
        "the nearest is nvidia.com/gpu of pool p0 (L40S): a new node may have L4 instead"
    )


def test_one_pool_that_gives_a_pod_one_share_is_enough_to_refuse_two() -> None:
    """The pod may be scheduled to that pool, and its device plugin then fails it."""
    with pytest.raises(InputError) as caught:
        made("a40", "sliced", gpu={"memory_gib": 10}, count=2)
    assert str(caught.value) == (
        "workloads[0].count: pool sliced refuses pods that request more than one share "
        "(UnexpectedAdmissionError); request 1, or set fail_requests_greater_than_one: false"
    )
    assert made("a40", "sliced", gpu={"memory_gib": 10}, count=4), "no node of that pool has so many"
