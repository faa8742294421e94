"""GPUs by claim, and GPUs that are chosen by what a workload requires."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra import versions
from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.plan import dra, eks, gpu_operator, karpenter, render, sharing, workloads
from tests.build.aws_environments import CLAIMED, CLAIMED_SLICES, SLICED, TABLE, aws
from tests.build.edits import message
from tests.build.environments import declared, gpus, on

pytestmark = pytest.mark.unit


ENV = TABLE["claimed"]
WORK = {"name": "train", "namespace": "lab", "pool": "p0", "image": "a:1"}
DRIVER_CHART = "oci://registry.k8s.io/dra-driver-nvidia/charts/dra-driver-nvidia-gpu"
KINDS = {"pod": {}, "deployment": {"replicas": 2}, "job": {"parallelism": 2}}


def node_pool(env: Environment) -> dict[str, Any]:
    (manifest,) = karpenter.node_pools(env, env.pools[0])
    return manifest


def test_the_node_pool_keeps_its_number_and_has_room_for_one_that_replaces_another() -> None:
    manifest = node_pool(ENV)
    assert manifest["metadata"]["name"] == "p0-static"
    spec = manifest["spec"]
    assert (spec["replicas"], spec["limits"]) == (2, {"nodes": "3"})
    assert "weight" not in spec
    assert spec["disruption"]["consolidateAfter"] == "Never"
    assert spec["template"]["spec"]["nodeClassRef"]["name"] == "p0"
    assert karpenter.ec2_node_class(ENV, ENV.pools[0], "role", "labs")["metadata"]["name"] == "p0"
    assert karpenter.node_overlays(ENV, ENV.pools[0]) == ()
    gates = eks.karpenter_values(ENV)["settings"]["featureGates"]
    assert gates == {"nodeOverlay": True, "reservedCapacity": False, "staticCapacity": True}


def test_its_class_says_when_an_old_node_is_replaced() -> None:
    training = node_pool(aws({**CLAIMED, "class": "training"}))["spec"]
    assert training["template"]["spec"]["expireAfter"] == "Never"
    assert {"nodes": "0", "reasons": ["Drifted", "Underutilized"]} in training["disruption"]["budgets"]


def test_one_label_keeps_the_device_plugin_off_and_the_driver_on() -> None:
    claimed, sliced = ENV.pools
    assert sharing.pool_labels(ENV, claimed)["nvidia.com/gpu.deploy.device-plugin"] == "false"
    assert "nvidia.com/device-plugin.config" not in sharing.pool_labels(ENV, claimed)
    assert "nvidia.com/gpu.deploy.device-plugin" not in sharing.pool_labels(ENV, sliced)
    release = dra.release(ENV)
    assert release
    assert release.values["kubeletPlugin"]["nodeSelector"] == {"nvidia.com/gpu.deploy.device-plugin": "false"}
    assert gpu_operator.values(ENV)["devicePlugin"]["enabled"], "the other pool has it"
    alone = gpu_operator.values(aws(CLAIMED, {"name": "cpu", "machine": "m6i.xlarge", "nodes": 1}))
    assert not alone["devicePlugin"]["enabled"], "the operator's validator would wait for it for ever"
    born = node_pool(ENV)["spec"]["template"]["metadata"]["labels"]
    assert born["nvidia.com/gpu.deploy.device-plugin"] == "false"
    # Without it the operator would remove the other label again before discovery has seen the GPU.
    assert born["feature.node.kubernetes.io/pci-10de.present"] == "true"


def test_the_driver_is_one_pinned_release_that_tolerates_its_pools_alone() -> None:
    release = dra.release(aws({**CLAIMED, "taints": [{"key": "a"}]}, {**SLICED, "taints": [{"key": "b"}]}))
    assert release
    assert release.version == versions.DRA_DRIVER
    assert release.chart == DRIVER_CHART
    tolerated = [toleration["key"] for toleration in release.values["kubeletPlugin"]["tolerations"]]
    assert tolerated == ["nvidia.com/gpu", "a", "gpuform.io/gpu-not-ready"]
    assert release.namespace == "gpu-operator", "the only namespace that lets privileged pods in"
    assert dra.release(TABLE["sliced"]) is None


def test_compute_domains_alpha_gates_and_what_needs_a_certificate_are_off() -> None:
    """dra-driver-nvidia-gpu#1452: slices that are cut for a claim are not undone where it fails halfway."""
    release = dra.release(ENV)
    assert release
    assert release.values["resources"] == {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}}
    assert release.values["webhook"] == {"enabled": False}
    assert "featureGates" not in release.values


def test_a_claimed_node_offers_no_resource_and_says_so() -> None:
    pool = ENV.pools[0]
    assert allocatable.resources(pool) == {}
    assert allocatable.claimable(pool) == {"gpu.nvidia.com": 4}
    assert allocatable.claimable(ENV.pools[1]) == {}
    files = render.render(ENV)
    assert "claimable:\n  gpu.nvidia.com: 4" in files["pools.yaml"]
    assert "dra-driver.yaml" not in render.render(TABLE["sliced"])


def manifests_with(env: dict[str, Any] = CLAIMED, **work: Any) -> list[dict[str, Any]]:
    return list(workloads.manifests(aws(env, workloads=[{**WORK, **work}])))


@pytest.mark.parametrize("kind", KINDS)
def test_a_workloads_pods_claim_what_they_would_have_asked_for(kind: str) -> None:
    template, work = manifests_with(kind=kind, count=2, **KINDS[kind])
    assert (template["kind"], template["apiVersion"]) == ("ResourceClaimTemplate", "resource.k8s.io/v1")
    assert (template["metadata"]["name"], template["metadata"]["namespace"]) == ("train-2-gpu", "lab")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 2,
    }
    spec = work["spec"] if kind == "pod" else work["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "train-2-gpu"}]
    resources = spec["containers"][0]["resources"]
    assert resources["claims"] == [{"name": "gpu"}]
    assert set(resources["requests"]) | set(resources["limits"]) == {"cpu", "memory"}
    assert spec["nodeSelector"] == {"gpuform.io/pool": "p0"}
    assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_a_workload_on_other_pools_claims_nothing() -> None:
    (work,) = manifests_with(SLICED, kind="pod")
    assert "resourceClaims" not in work["spec"]
    assert "claims" not in work["spec"]["containers"][0]["resources"]


CUT = TABLE["claimed slices"]


def affinity(env: Environment) -> list[Any]:
    release = dra.release(env)
    assert release
    required = release.values["kubeletPlugin"]["affinity"]["nodeAffinity"]
    terms: list[Any] = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return terms


def test_slices_are_cut_as_for_kind_mig_and_counted_by_their_class() -> None:
    pool = CUT.pools[0]
    assert sharing.mig_config_name(pool) == "3g.20gb-2x2g.10gb"
    config = sharing.mig_parted_config(CUT.pools)
    assert config
    assert config["mig-configs"]["3g.20gb-2x2g.10gb"] == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"2g.10gb": 2, "3g.20gb": 1}}
    ]
    born = karpenter.node_labels(CUT, pool)
    assert born["nvidia.com/mig.config"] == "3g.20gb-2x2g.10gb"
    assert born["nvidia.com/gpu.deploy.device-plugin"] == "false"
    assert (allocatable.resources(pool), allocatable.claimable(pool)) == ({}, {"mig.nvidia.com": 24})
    assert gpu_operator.values(CUT)["migManager"]["enabled"]


def test_the_driver_waits_for_the_layout_where_there_may_be_one_and_nowhere_else() -> None:
    settled = {"key": "nvidia.com/mig.config.state", "operator": "In", "values": ["success"]}
    others = {"key": "gpuform.io/pool", "operator": "NotIn", "values": ["p0"]}
    assert affinity(CUT) == [{"matchExpressions": [settled]}, {"matchExpressions": [others]}]
    assert affinity(aws(CLAIMED_SLICES)) == [{"matchExpressions": [settled]}]
    whole = {**CLAIMED_SLICES, "sharing": {"kind": "dra"}}
    assert affinity(aws(whole)) == [{"matchExpressions": [settled]}], "it may have been cut before"
    release = dra.release(ENV)
    assert release
    assert "affinity" not in release.values["kubeletPlugin"], "an L4 has no MIG"


@pytest.mark.parametrize(
    ("layout", "asked", "name", "count", "profile"),
    [
        (None, {"slice": "2g.10gb"}, "train-1-2g.10gb", 1, "2g.10gb"),
        # None can be changed, so another number is another template.
        (None, {"slice": "2g.10gb", "count": 3}, "train-3-2g.10gb", 3, "2g.10gb"),
        # The only kind of slice needs no naming, and a plus is none in a name.
        ("all-1g.5gb+me", {}, "train-1-1g.5gb.me", 1, "1g.5gb+me"),
    ],
)
def test_a_claim_for_slices_names_their_profile(
    layout: str | None, asked: dict[str, Any], name: str, count: int, profile: str
) -> None:
    only = {"sharing": {"kind": "dra", "layout": layout}} if layout else {}
    template, work = manifests_with({**CLAIMED_SLICES, **only}, kind="pod", **asked)
    assert template["metadata"]["name"] == name
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    expression = f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"
    assert request["exactly"] == {
        "deviceClassName": "mig.nvidia.com",
        "selectors": [{"cel": {"expression": expression}}],
        "allocationMode": "ExactCount",
        "count": count,
    }
    assert work["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": name}]


GPUS = {"gpu": {"models": ["A100-40GB"], "count": 2}}
ELSEWHERE = {"embedded": {"machine": "g4.p2.40g"}, "existing": GPUS, "hosts": GPUS}


def on_other_cluster(kind: str, **operator: Any) -> Environment:
    layout = {"kind": "dra", "layout": "all-3g.20gb"}
    return on(kind, {**ELSEWHERE[kind], "sharing": layout}, gpu_operator=operator)


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_claims_are_to_be_had_on_every_kind_of_cluster(kind: str) -> None:
    env = on_other_cluster(kind)
    (pool,) = env.pools
    assert allocatable.claimable(pool) == {"mig.nvidia.com": 4}
    assert not pool.by_karpenter, "Karpenter runs on AWS alone"
    release = dra.release(env)
    assert release
    ours = kind == "embedded"
    assert release.chart == ("charts/dra-driver-sim" if ours else DRIVER_CHART)
    assert (release.version is None) == ours
    assert sharing.pool_labels(env, pool)["nvidia.com/gpu.deploy.device-plugin"] == "false"
    assert "dra-driver.yaml" in render.render(env)


@pytest.mark.parametrize(
    ("kind", "operator", "root"),
    [
        ("embedded", {}, "/run/nvidia/driver"),
        ("existing", {}, "/run/nvidia/driver"),
        ("existing", {"driver": "host"}, "/"),
        ("hosts", {}, "/"),
    ],
)
def test_the_driver_is_looked_for_where_its_owner_puts_it(
    kind: str, operator: dict[str, Any], root: str
) -> None:
    release = dra.release(on_other_cluster(kind, **operator))
    assert release
    assert release.values["nvidiaDriverRoot"] == root


def test_a_claim_chooses_its_gpu_by_what_the_driver_tells_of_it() -> None:
    need = {"memory_gib": 20, "compute": "8.9", "family": "ada-lovelace"}
    template, work = manifests_with(kind="pod", gpu=need)
    assert template["metadata"]["name"] == "train-1-gpu-20gi-8.9-ada-lovelace"
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert [selector["cel"]["expression"] for selector in request["exactly"]["selectors"]] == [
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('20Gi')) >= 0",
        "device.attributes['gpu.nvidia.com'].cudaComputeCapability.compareTo(semver('8.9.0')) >= 0",
        "device.attributes['gpu.nvidia.com'].architecture == 'Ada Lovelace'",
    ]
    assert "affinity" not in work["spec"]
    assert work["spec"]["nodeSelector"] == {"gpuform.io/pool": "p0"}


REFUSED = {
    "workloads[0].gpu: pool p0 has no GPU with 40 GiB or more; its models are L4": (
        CLAIMED,
        {"gpu": {"memory_gib": 40}},
    ),
    "workloads[0].gpu.nvlink: a claim cannot request it: the driver publishes no NVLink; leave it out, and "
    "name a pool with such GPUs": (CLAIMED, {"gpu": {"nvlink": True}}),
    "workloads[0].gpu.memory_gib: a claim for slices names their profile, which determines their "
    "memory; leave it out": (CLAIMED_SLICES, {"gpu": {"memory_gib": 5}, "slice": "2g.10gb"}),
    "workloads[0].gpu: pool is given too; use one of the two": (SLICED, {"gpu": {"memory_gib": 5}}),
}


@pytest.mark.parametrize("expected", REFUSED)
def test_a_claim_that_no_device_meets_is_refused(expected: str) -> None:
    pool, asked = REFUSED[expected]
    with pytest.raises(InputError) as refused:
        manifests_with(pool, kind="pod", **asked)
    assert str(refused.value) == expected


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
def test_pools_that_satisfy_a_need(pools: list[str], need: dict[str, Any], chosen: list[str]) -> None:
    spec = made(*pools, gpu=need)
    assert terms(spec) == [{"gpuform.io/pool": chosen}]
    assert gpus({"kind": "Pod", "spec": spec}) == {"nvidia.com/gpu": "1"}
    assert [toleration["key"] for toleration in spec["tolerations"]] == ["nvidia.com/gpu"]
    assert "nodeSelector" not in spec


def test_a_slice_counts_with_its_own_memory() -> None:
    spec = made("t4", "cut", gpu={"memory_gib": 19})
    assert gpus({"kind": "Pod", "spec": spec}) == {"nvidia.com/mig-3g.20gb": "1"}
    assert terms(spec) == [{"gpuform.io/pool": ["cut"]}]


def test_of_several_slices_the_named_one() -> None:
    spec = made("cut", gpu={"family": "ampere"}, slice="2g.10gb", count=2)
    assert gpus({"kind": "Pod", "spec": spec}) == {"nvidia.com/mig-2g.10gb": "2"}


UNMET: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
    (("t4", "cut"), {"gpu": {"memory_gib": 20}},  # NVML reports 19.5 GiB
     r"no pool has 20 GiB or more; .*mig-3g\.20gb of pool cut .*: 19\.5 GiB"),
    (("sevenths",), {"gpu": {"nvlink": True}}, r"\(A100-SXM4-40GB\): a MIG slice has no NVLink"),
    (("cut",), {"gpu": {"family": "ampere"}, "slice": "1g.5gb"},
     r"no pool has a slice 1g\.5gb with .*; no pool offers it"),
    (("renamed", "t4"), {"gpu": {"family": "turing"}}, r"pool renamed nvidia\.com/gpu\.shared, pool t4"),
    # One pool with one share for a pod is enough: the pod may go there, and its device plugin fails it.
    (("a40", "sliced"), {"gpu": {"memory_gib": 10}, "count": 2}, r"pool sliced refuses pods that request"),
]  # fmt: skip


@pytest.mark.parametrize(("pools", "work", "expected"), UNMET)
def test_a_need_that_no_pool_meets_is_refused(
    pools: tuple[str, ...], work: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        made(*pools, **work)
    assert made("a40", "sliced", gpu={"memory_gib": 10}, count=4), "no node of pool sliced has so many shares"


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


def test_on_aws_a_pool_is_not_judged_by_gpus_that_ec2_does_not_sell() -> None:
    """A30 and A100 PCIe match, too, but no EC2 type has them."""
    asked = {"memory_gib": 24, "nvlink": False, "compute": "8.0", "count": 1}
    work = {"name": "w", "kind": "pod", "gpu": {"memory_gib": 20}, "image": "a:1"}
    for size in ({"nodes": 1}, {"elastic": {"max": {"cpu": 1000}}}):
        env = aws({"gpu": asked, "sharing": {"kind": "mps", "replicas": 2}, **size}, workloads=[work])
        assert [gpu.name for gpu in env.pools[0].gpus] == ["L40S", "RTX-PRO-6000"]
        assert allocatable.mps_memory_mib(env.pools[0]) == 46068 // 2
        assert parse(env.resolved()).pools == env.pools


def test_a_pool_says_that_its_next_node_may_lack_it() -> None:
    pool = {"gpu": {"models": ["L4", "L40S"], "count": 1}, "elastic": {"max": {"cpu": 1000}}}
    with pytest.raises(InputError) as caught:
        aws(pool, workloads=[{"name": "w", "kind": "pod", "gpu": {"memory_gib": 40}, "image": "a:1"}])
    assert caught.value.remedy == (
        "the nearest is nvidia.com/gpu of pool p0 (L40S): a new node may have L4 instead"
    )
