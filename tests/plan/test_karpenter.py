"""Karpenter's NodePools, EC2NodeClasses and NodeOverlays, its release, and EKS's add-ons."""

from __future__ import annotations

import csv
import itertools
from typing import Any

import pytest
import yaml

from infra import versions
from infra.model.base.quantities import version_numbers
from infra.model.checks.aws_pools import FIRST_KARPENTER_WITH_CLAIMS
from infra.model.environment import Environment
from infra.model.gpu.machines import MACHINES
from infra.model.pool import allocatable
from infra.plan import eks, karpenter, karpenter_patches, readiness_gate, render
from infra.plan.rules import facts
from tests.build.aws_environments import COUNTS, MODELS, SLICED, TABLE, aws
from tests.build.environments import on
from tests.external import reference

pytestmark = pytest.mark.unit

GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count"


def pools_of(env: Environment, index: int = 0) -> dict[str, Any]:
    return {pool["metadata"]["name"]: pool["spec"] for pool in karpenter.node_pools(env, env.pools[index])}


def node_class_of(env: Environment, index: int = 0) -> dict[str, Any]:
    manifest = karpenter.ec2_node_class(env, env.pools[index], "labs-karpenter-node", "labs")
    spec: dict[str, Any] = manifest["spec"]
    return spec


def test_a_reservation_comes_before_on_demand_and_spot_comes_last() -> None:
    pools = pools_of(TABLE["by model"])
    assert list(pools) == ["p0-reserved", "p0-on-demand", "p0-spot"]
    capacity, weights = "karpenter.sh/capacity-type", {"reserved": 100, "on-demand": 50, "spot": 10}
    for spec, (bought, weight) in zip(pools.values(), weights.items(), strict=True):
        asked = {"key": capacity, "operator": "In", "values": [bought]}
        assert asked in spec["template"]["spec"]["requirements"]
        assert spec["weight"] == weight
    terms = node_class_of(TABLE["by model"])["capacityReservationSelectorTerms"]
    assert terms == [{"id": "cr-00000000"}, {"id": "cr-0a1b2c3d"}]
    assert "capacityReservationSelectorTerms" not in node_class_of(TABLE["sliced"])
    for spec in pools.values():
        assert spec["template"]["spec"]["nodeClassRef"]["name"] == "p0"


def allowed(spec: dict[str, Any], instance: dict[str, str]) -> bool:
    """Whether Karpenter would buy the type: all requirements, evaluated as its scheduler does."""
    values = {
        "karpenter.k8s.aws/instance-gpu-name": instance["gpu_name"],
        "karpenter.k8s.aws/instance-gpu-count": instance["gpu_count"],
        "karpenter.k8s.aws/instance-gpu-memory": instance["gpu_memory_mib_each"],
        "node.kubernetes.io/instance-type": instance["instance_type"],
        "kubernetes.io/arch": instance["arch"],
    }
    for item in spec["template"]["spec"]["requirements"]:
        if item["key"] in values:
            inside = values[item["key"]] in item["values"]
            if inside == (item["operator"] == "NotIn"):
                return False
    return True


@pytest.mark.parametrize("models", [*itertools.combinations(MODELS, 1), *itertools.combinations(MODELS, 2)])
def test_gpus_by_model_let_in_the_types_with_them_and_no_other(models: tuple[str, ...]) -> None:
    with reference("ec2/gpu-instance-types.csv").open() as file:
        types = list(csv.DictReader(file))
    for counts in ([1], [2], [4], [8], [1, 4], [1, 8], [4, 8], [1, 4, 8]):
        sold = [m for m in MACHINES.values() if m.seller == "ec2" and m.gpu in models]
        meant = {m.name for m in sold if m.gpus in counts}
        if not set(counts) <= {m.gpus for m in sold}:
            continue
        if not set(models) <= {m.gpu for m in sold if m.gpus in counts}:
            continue  # refused: a model without a matching type
        count: Any = counts if len(counts) > 1 else counts[0]
        pool = {"gpu": {"models": list(models), "count": count}, "elastic": {"max": {"cpu": 24 * counts[-1]}}}
        (spec,) = pools_of(aws(pool)).values()
        assert {kind["instance_type"] for kind in types if allowed(spec, kind)} == meant


@pytest.mark.parametrize("env", TABLE.values(), ids=TABLE)
def test_no_limit_is_on_a_resource_that_no_node_offers(env: Environment) -> None:
    for index, pool in enumerate(env.pools):
        offered = allocatable.resources(pool, pool.gpu_counts[0])
        for spec in pools_of(env, index).values():
            assert spec["limits"]
            assert set(spec["limits"]) <= ({"nodes"} if pool.by_claim else {"cpu", "memory", *offered})


CLASSES = {
    "training": ("WhenEmpty", "10m", "Never", None),
    "inference": ("WhenEmptyOrUnderutilized", "5m", "336h", "15m"),
    "interactive": ("WhenEmptyOrUnderutilized", "5m", "120m", "8h"),
    "batch": ("WhenEmptyOrUnderutilized", "1m", "24h", "30m"),
}


@pytest.mark.parametrize(("name", "expected"), CLASSES.items())
def test_the_class_says_when_a_node_may_go(name: str, expected: tuple[str | None, ...]) -> None:
    (spec,) = pools_of(aws({**SLICED, "class": name})).values()
    disruption, template = spec["disruption"], spec["template"]["spec"]
    found = (disruption["consolidationPolicy"], disruption["consolidateAfter"], template["expireAfter"])
    assert (*found, template.get("terminationGracePeriod")) == expected
    assert disruption["budgets"]


def test_no_training_job_ends_for_a_new_image_or_a_tidier_cluster() -> None:
    budgets = pools_of(TABLE["mig"])["p0-reserved"]["disruption"]["budgets"]
    assert {"nodes": "0", "reasons": ["Drifted", "Underutilized"]} in budgets


def test_what_expires_by_force_has_a_grace_period() -> None:
    for row in karpenter.DISRUPTION.values():
        assert (row.expire_after == "Never") == (row.grace is None)


def test_bottlerocket_looks_at_no_label_of_nvidias() -> None:
    for name in ("bottlerocket", "bottlerocket mps", "bottlerocket mig"):
        (spec,) = pools_of(TABLE[name]).values()
        assert not [key for key in spec["template"]["metadata"]["labels"] if key.startswith("nvidia.com/")]


ONE, TWELVE = {"gpu": 0, "gpu.shared": 3}, {"gpu": 0, "gpu.shared": 12}
KEPT = {"kind": "time_slicing", "replicas": 3, "rename": False}
P4D, FOUR = {"machine": "p4d.24xlarge"}, {"machine": "g4dn.12xlarge"}
SOME = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}, "devices": [0, 1, 2]}
SHARES = {"kind": "mig", "layout": "all-1g.5gb", "share": {"replicas": 3}}
# What Karpenter is told that a node offers, by the number of its GPUs; names without nvidia.com/.
OVERLAYS: dict[str, tuple[Environment, dict[str, dict[str, int]]]] = {
    "shares": (TABLE["sliced"], {"1": ONE}),
    "clients of MPS": (TABLE["mps"], {"1": {"gpu": 4}}),
    "slices": (TABLE["mig"], {"8": {"gpu": 0, "mig-2g.10gb": 16, "mig-3g.20gb": 8}}),
    "slices of one kind": (TABLE["mig, one resource"], {"8": {"gpu": 56}}),
    "some slices": (aws({**P4D, "sharing": SOME}), {"8": {"gpu": 5, "mig-2g.10gb": 6, "mig-3g.20gb": 3}}),
    "shares of slices": (aws({**P4D, "sharing": SHARES}), {"8": {"gpu": 0, "mig-1g.5gb.shared": 168}}),
    "four": (aws({**FOUR, "sharing": SLICED["sharing"]}), {"4": TWELVE}),
    "counts": (TABLE["several counts"], {"1": ONE, "4": TWELVE}),
    "counts, slices": (TABLE["several counts, mig"], {"1": {"gpu": 0, "mig-1g.10gb": 7},
                                                      "8": {"gpu": 0, "mig-1g.10gb": 56}}),
    "counts, same name": (aws({**COUNTS, "sharing": KEPT}), {"1": {"gpu": 3}, "4": {"gpu": 12}}),
    "counts, whole": (TABLE["several counts, whole"], {}),
}  # fmt: skip


@pytest.mark.parametrize(("env", "expected"), OVERLAYS.values(), ids=OVERLAYS)
def test_an_overlay_says_what_a_node_with_so_many_gpus_will_offer(
    env: Environment, expected: dict[str, dict[str, int]]
) -> None:
    found = {}
    for manifest in karpenter.node_overlays(env, env.pools[0]):
        needs = {item["key"]: item["values"] for item in manifest["spec"]["requirements"]}
        (count,) = needs.pop(GPU_COUNT)
        assert needs == {"karpenter.sh/nodepool": sorted(pools_of(env))}
        assert len(expected) == 1 or manifest["metadata"]["name"] == f"p0-{count}-gpu"
        capacity = manifest["spec"]["capacity"]
        found[count] = {key.removeprefix("nvidia.com/"): int(number) for key, number in capacity.items()}
    assert found == expected
    assert gates(env)["nodeOverlay"] is bool(expected)


def test_the_image_is_the_pinned_one() -> None:
    assert node_class_of(TABLE["sliced"])["amiSelectorTerms"] == [{"alias": "al2023@v20260801"}]
    bottle = node_class_of(TABLE["bottlerocket"])
    assert bottle["amiSelectorTerms"] == [{"id": "ami-0123456789abcdef0"}]
    assert bottle["amiFamily"] == "Bottlerocket"


def test_disks_are_encrypted_and_the_declared_one_holds_the_containers() -> None:
    disk = {"size_gib": 200, "iops": 10000, "throughput": 250}
    plain, bottle = (
        node_class_of(aws({**SLICED, "aws": {"disk": disk, **image}}))["blockDeviceMappings"]
        for image in ({}, {"image": "bottlerocket-nvidia"})
    )
    assert [device["deviceName"] for device in plain] == ["/dev/xvda"]
    assert [device["deviceName"] for device in bottle] == ["/dev/xvda", "/dev/xvdb"]
    declared = {"volumeSize": "200Gi", "volumeType": "gp3", "iops": 10000, "throughput": 250}
    always = {"encrypted": True, "deleteOnTermination": True}
    assert plain[-1]["ebs"] == bottle[-1]["ebs"] == {**declared, **always}
    assert bottle[0]["ebs"]["encrypted"]


def test_karpenter_is_told_the_number_of_pods_and_the_node_itself_the_limit_of_processes() -> None:
    """EC2NodeClass of Karpenter 1.14 has no field for it, and the API server rejects unknown fields."""
    at_boot = node_class_of(TABLE["at boot"])
    assert at_boot["kubelet"] == {"maxPods": 110}
    assert "podPidsLimit: 32768" in at_boot["userData"]
    assert node_class_of(TABLE["bottlerocket"])["kubelet"] == {"maxPods": 110}
    assert "kubelet" not in node_class_of(TABLE["sliced"])


def test_a_chosen_name_that_comes_to_mean_another_layout_is_drift() -> None:
    """With strategy single both offer as many slices, so nothing else in the NodePool would change."""

    def template(layout: dict[str, int], **more: Any) -> Any:
        block = {"kind": "mig", "layout": layout, "strategy": "single", **more}
        (spec,) = pools_of(aws({"machine": "p4d.24xlarge", "sharing": block})).values()
        return spec["template"]["metadata"]

    small, large = ({"1g.5gb": 2}, {"2g.10gb": 2})
    assert template(small, name="ours") != template(large, name="ours")
    assert template(small, name="ours") == template(small, name="ours", share=None)
    assert set(template(small)["annotations"]) == {"gpuform.io/offers"}


def gates(env: Environment) -> dict[str, bool]:
    found: dict[str, bool] = eks.karpenter_values(env)["settings"]["featureGates"]
    return found


@pytest.mark.parametrize(
    ("name", "overlay", "reserved"),
    [
        ("sliced", True, False),
        ("mig", True, True),
        ("by model", False, True),
        ("whole and none", False, False),
        ("managed", False, False),
    ],
)
def test_gates_are_open_where_they_are_used(name: str, overlay: bool, reserved: bool) -> None:
    assert gates(TABLE[name]) == {"nodeOverlay": overlay, "reservedCapacity": reserved}


def test_no_replica_waits_for_a_node_that_is_not_there() -> None:
    assert eks.karpenter_values(TABLE["sliced"])["replicas"] == 2
    assert eks.karpenter_values(aws(SLICED, system={"nodes": 1}))["replicas"] == 1


def test_claims_are_refused_on_elastic_pools_only_below_the_version_that_allocates_them() -> None:
    """A pin from that version on must allow them: docs/adr/0006 says what 1.15.0 does to reservations."""
    assert version_numbers(versions.KARPENTER) < version_numbers(FIRST_KARPENTER_WITH_CLAIMS)


def test_every_version_of_eks_has_every_add_on_pinned() -> None:
    for version in versions.EKS_ADD_ONS:
        add_ons = eks.add_ons(aws(SLICED, version=version))
        agents = ["eks-node-monitoring-agent", "eks-pod-identity-agent"]
        assert list(add_ons) == ["aws-ebs-csi-driver", "coredns", *agents, "kube-proxy", "vpc-cni"]
        assert all("-eksbuild." in pin for pin in add_ons.values())
        assert add_ons["kube-proxy"].startswith(f"v{version}.")


def test_an_add_on_may_have_another_version() -> None:
    own = {"coredns": "v1.14.3-eksbuild.3", "kube-proxy": "v1.33.9-eksbuild.1"}
    pinned, found = eks.add_ons(aws(SLICED)), eks.add_ons(aws(SLICED, add_ons=own))
    assert found == {**pinned, **own}
    assert list(found) == list(pinned)


def test_every_way_of_buying_takes_every_count() -> None:
    env = TABLE["several counts"]
    manifests = karpenter.node_pools(env, env.pools[0])
    assert [manifest["metadata"]["name"] for manifest in manifests] == ["p0-on-demand", "p0-spot"]
    for manifest in manifests:
        needs = manifest["spec"]["template"]["spec"]["requirements"]
        assert {"key": GPU_COUNT, "operator": "In", "values": ["1", "4"]} in needs
    assert {machine.gpus for machine in env.pools[0].machines} == {1, 4}, "and no metal, which has eight"


def test_types_that_were_not_meant_are_left_out_for_every_count() -> None:
    """Name and memory of two models match a third one as well; its types have one or eight GPUs."""
    pool = {"gpu": {"models": ["H100-SXM", "A100-SXM4-40GB"], "count": [1, 8]}}
    env = aws(pool)
    (manifest,) = karpenter.node_pools(env, env.pools[0])
    (left_out,) = [
        item["values"]
        for item in manifest["spec"]["template"]["spec"]["requirements"]
        if item["operator"] == "NotIn"
    ]
    assert left_out == ["p4de.24xlarge"]


def test_a_count_more_changes_no_node_that_is_there() -> None:
    """Karpenter's drift hash is of the template without its requirements."""
    fewer, more = (aws({"gpu": {"models": ["A10G"], "count": count}}) for count in ([1, 4], [1, 4, 8]))
    templates = [karpenter.node_pools(env, env.pools[0])[0]["spec"]["template"] for env in (fewer, more)]
    for template in templates:
        del template["spec"]["requirements"]
    assert templates[0] == templates[1]


POOLS: list[dict[str, Any]] = [
    {"gpu": {"models": ["T4"]}, "sharing": COUNTS["sharing"]},
    {"gpu": {"models": ["L4", "A10G"]}, "capacity": ["on_demand", "spot"]},
    {"gpu": {"models": ["T4"]}, "elastic": None, "nodes": 2},
]


@pytest.mark.parametrize("pool", POOLS)
def test_a_list_of_one_is_that_number(pool: dict[str, Any]) -> None:
    number, listed = (
        render.render(aws({**pool, "gpu": {**pool["gpu"], "count": count}})) for count in (1, [1])
    )
    for files in (number, listed):
        del files["environment.yaml"]
    assert number == listed
    assert "offers-per-gpu" not in number.get("karpenter.yaml", "")


def test_a_workload_may_ask_for_what_the_largest_node_offers() -> None:
    work = {"name": "w", "kind": "pod", "pool": "p0", "image": "x:1"}
    kept = {**COUNTS, "sharing": {**COUNTS["sharing"], "fail_requests_greater_than_one": False}}
    env = aws(kept, workloads=[{**work, "count": 12}])
    assert env.workloads[0].device_count == 12, "thirteen are in the table of bad input"
    assert allocatable.max_resources(env.pools[0]) == {"nvidia.com/gpu.shared": 12}


def test_what_nodes_offer_is_said_by_their_number_of_gpus() -> None:
    (pool,) = yaml.safe_load_all(render.render(TABLE["several counts"])["pools.yaml"])
    assert pool["offered"] == {"1": {"nvidia.com/gpu.shared": 3}, "4": {"nvidia.com/gpu.shared": 12}}
    (single,) = yaml.safe_load_all(render.render(TABLE["sliced"])["pools.yaml"])
    assert single["offered"] == {"nvidia.com/gpu.shared": 3}


@pytest.mark.parametrize(
    ("expected", "gpus"), [({GPU_COUNT: "4"}, 4), ({GPU_COUNT: "1"}, 1), ({}, None), ({GPU_COUNT: "x"}, None)]
)
def test_a_live_node_says_how_many_it_has_where_the_pool_does_not(
    expected: dict[str, str], gpus: int | None
) -> None:
    several, one = TABLE["several counts"].pools[0], TABLE["sliced"].pools[0]
    assert allocatable.node_gpus(several, expected) == gpus
    assert allocatable.node_gpus(one, expected) == 1


def test_an_existing_pool_says_by_discoverys_label_what_each_node_offers() -> None:
    gpu = {"models": ["H100"], "count": [4, 8]}
    env = on("existing", {"gpu": gpu}, gpu_operator={"driver": "host"}, monitoring={})
    offers = {"4": {"nvidia.com/gpu": 4}, "8": {"nvidia.com/gpu": 8}}
    assert readiness_gate.pools(env)["p0"]["offers"] == offers
    texts = "".join(map(str, facts.rules(env)))
    assert 'label_nvidia_com_gpu_count="8"' in texts
    assert "instance_gpu_count" not in texts


class TestNodePoolsOfOthers:
    def env(self, **pool: Any) -> Environment:
        chosen = {"name": "t4", "gpu": {"models": ["T4"], "count": [1, 4]}, **pool}
        chosen.setdefault("selector", {"karpenter.sh/nodepool": "inference"})
        return on("existing", chosen, gpu_operator={"mode": "existing"})

    def test_patch_has_the_labels_of_the_pool_and_an_overlay_per_number_of_gpus(self) -> None:
        shared = {"kind": "time_slicing", "replicas": 3}
        env = self.env(sharing=shared)
        labels = {"gpuform.io/pool": "t4", "gpuform.io/environment": "e"}
        patch = {"spec": {"template": {"metadata": {"labels": labels}}}}
        assert karpenter_patches.patches(env) == {"inference": patch}
        assert [item["spec"]["capacity"] for item in karpenter_patches.overlays(env)] == [
            {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "3"},
            {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "12"},
        ]
        assert {"nodepool-inference.yaml", "node-overlays.yaml"} <= render.render(env).keys()

    def test_whole_gpus_need_no_overlay(self) -> None:
        assert karpenter_patches.overlays(self.env()) == ()

    @pytest.mark.parametrize("selector", [{"a": "b"}, {"karpenter.sh/nodepool": "x", "a": "b"}])
    def test_only_a_pool_of_all_nodes_of_a_node_pool_has_a_patch(self, selector: dict[str, str]) -> None:
        assert karpenter_patches.patches(self.env(selector=selector)) == {}
        assert not [name for name in render.render(self.env(selector=selector)) if "nodepool" in name]
