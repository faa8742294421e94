"""GPUs allocated by claim: static NodePools, the DRA driver's release, and what workloads' pods claim."""

from __future__ import annotations

from typing import Any

import pytest

from infra import versions
from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.plan import dra, eks, gpu_operator, karpenter, render, sharing, workloads
from tests.plan.aws_environments import CLAIMED, CLAIMED_SLICES, SLICED, TABLE, aws
from tests.plan.environments import on

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
