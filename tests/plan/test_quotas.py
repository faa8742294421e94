"""Priorities, quotas, spare nodes and the second scheduler as declared."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra import versions
from infra.config import parse
from infra.facts import EKS_VERSIONS
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.plan import quotas, scheduler, workloads
from infra.plan.cost import bill
from infra.plan.nodes import aws_nodes as played
from policies.pack import RULES
from policies.rule import judge
from tests.build.aws_environments import CLAIMED, CLAIMED_SLICES, COUNTS, SLICED, aws
from tests.build.environments import on, pod_spec
from tests.fakes.recorder import record

pytestmark = pytest.mark.unit

NEWEST = {"al2023": "al2023@v20261012", "al2023-nvidia": "al2023@v20261012"}
WHOLE = {"machine": "g6.12xlarge"}
CUT = {"3g.20gb": 1, "2g.10gb": 2}
POOLS = [
    {"name": "t4", "machine": "g2.5xlarge", "sharing": {"kind": "time_slicing", "replicas": 4}},
    {"name": "mig", "machine": "g4.p1.40g", "sharing": {"kind": "mig", "layout": CUT}},
    {"name": "whole", "machine": "g4.p4.40g"},
    {"name": "cpu", "machine": "m6i.xlarge"},
]
KEEP = {"kind": "time_slicing", "replicas": 3, "rename": True, "fail_requests_greater_than_one": False}


def changed(env: Environment, **more: Any) -> Environment:
    return parse({**env.resolved(), **more})


def gpu_limits(manifest: dict[str, Any]) -> dict[str, str]:
    limits = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    return {name: number for name, number in limits.items() if name != "memory"}


@pytest.mark.parametrize(
    ("pool", "pods", "each"),
    [
        ({**WHOLE, "spare": 2}, 2, {"nvidia.com/gpu": "4"}),
        # A pod may have only one share, so there is a placeholder for each share.
        ({**SLICED, "spare": 2}, 6, {"nvidia.com/gpu.shared": "1"}),
        ({**SLICED, "sharing": KEEP, "spare": 2}, 2, {"nvidia.com/gpu.shared": "3"}),
        ({**COUNTS, "spare": 1}, 3, {"nvidia.com/gpu.shared": "1"}),
        (
            {"machine": "p4d.24xlarge", "spare": 1, "sharing": {"kind": "mig", "layout": CUT}},
            1,
            {"nvidia.com/mig-2g.10gb": "16", "nvidia.com/mig-3g.20gb": "8"},
        ),
    ],
)  # fmt: skip
def test_a_spare_node_is_held_whole(pool: dict[str, Any], pods: int, each: dict[str, str]) -> None:
    env = aws(pool)
    (found,) = quotas.placeholders(env)
    spec = found["spec"]["template"]["spec"]
    assert found["spec"]["replicas"] == quotas.placeholder_pods(env) == pods
    assert gpu_limits(found) == each
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["priorityClassName"] == "gpuform-placeholder"
    assert spec["nodeSelector"] == {"gpuform.io/pool": "p0"}
    assert {item["key"] for item in spec["tolerations"]} == {"nvidia.com/gpu"}
    assert found["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    # With a pod more than declared (Kubernetes' default), each change would start a node.
    assert found["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0
    assert "volumes" not in spec, "no workload, no image"
    (priority,) = quotas.priority_classes(env)
    assert priority["value"] < 0
    assert priority["preemptionPolicy"] == "Never"
    spaces = {entry["metadata"]["name"]: entry["metadata"]["labels"] for entry in quotas.namespaces(env)}
    assert spaces["gpuform-placeholder"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_placeholders_are_packed_where_pods_are() -> None:
    env = changed(aws({**WHOLE, "spare": 1}), scheduling={"packer": True})
    assert quotas.placeholders(env)[0]["spec"]["template"]["spec"]["schedulerName"] == "gpuform-packer"


@pytest.mark.parametrize(
    ("version", "work", "pulled"),
    [
        # k8s.io/kubernetes, pkg/features/kube_features.go: ImageVolume is on by default from 1.35 on.
        ("1.34", {"pool": "p0"}, []),
        ("1.35", {"pool": "p0"}, ["registry.example.org/hub/library/serve:1"]),
        ("1.36", {"gpu": {"memory_gib": 20}}, ["registry.example.org/hub/library/serve:1"]),
        ("1.36", {"pool": "p1"}, []),
    ],
)
def test_a_spare_node_pulls_the_images_of_the_pools_workloads(
    version: str, work: dict[str, Any], pulled: list[str]
) -> None:
    twice = [{"kind": "deployment", "name": name, "image": "serve:1", **work} for name in ("a", "b")]
    env = aws({**WHOLE, "spare": 1}, SLICED, version=version, workloads=twice)
    env = changed(env, registries={"docker.io": "registry.example.org/hub"})
    (found,) = quotas.placeholders(env)
    spec = found["spec"]["template"]["spec"]
    assert [item["image"]["reference"] for item in spec.get("volumes", [])] == pulled
    (container,) = spec["containers"]
    assert "volumeMounts" not in container, "a mounted image is never deleted: the disk would fill up"


def test_images_that_are_pulled_ahead_are_each_a_volume_in_a_fixed_order() -> None:
    works = [
        {"kind": "job", "name": "b", "pool": "p0", "image": "train:2"},
        {"kind": "notebook", "name": "n", "pool": "p0", "editor": "vscode", "user": "ana"},
        {"kind": "pod", "name": "a", "pool": "p0", "image": "serve:1"},
    ]
    env = aws({**WHOLE, "spare": 1}, version="1.36", workloads=works)
    (found,) = quotas.placeholders(env)
    assert found["spec"]["template"]["spec"]["volumes"] == [
        {"name": "image-0", "image": {"reference": env.image(env.workloads[1].image)}},
        {"name": "image-1", "image": {"reference": "serve:1"}},
        {"name": "image-2", "image": {"reference": "train:2"}},
    ]


def test_spare_nodes_are_paid_for_and_played() -> None:
    without, spare = aws(WHOLE), aws({**WHOLE, "spare": 2})
    none, two = (bill(env, PriceList()).lines[1] for env in (without, spare))
    assert (none.min_count, none.low) == (0, 0.0)
    assert two.min_count == 2
    assert two.low == pytest.approx((two.high or 0.0) / two.max_count * 2)
    assert [len(played(env)) - len(played(without)) for env in (without, spare)] == [0, 2]


def test_a_quota_names_every_gpu_resource_of_the_environment() -> None:
    pools = [*POOLS[:3], {"name": "more", "machine": "g1.4xlarge"}]
    spaces = [
        {"name": "team", "quota": {"t4": 3, "mig": {"2g.10gb": 1}}},
        {"name": "default", "quota": {"whole": 2, "more": 1}},
        {"name": "none", "quota": {}},
    ]
    env = on("embedded", *pools, namespaces=spaces)
    found = {item["metadata"]["namespace"]: item["spec"]["hard"] for item in quotas.resource_quotas(env)}
    every = ("gpu", "gpu.shared", "mig-2g.10gb", "mig-3g.20gb")
    nothing = {f"requests.nvidia.com/{name}": "0" for name in every}
    assert found["team"] == nothing | {
        "requests.nvidia.com/gpu.shared": "3",
        "requests.nvidia.com/mig-2g.10gb": "1",
    }
    assert found["default"] == nothing | {"requests.nvidia.com/gpu": "3"}, "the numbers add up"
    assert found["none"] == nothing
    made = [entry["metadata"]["name"] for entry in quotas.namespaces(env)]
    assert made == ["gpu-operator", "none", "team"], "default is there"


def test_claimed_gpus_are_counted_by_their_class() -> None:
    pools = CLAIMED, SLICED, CLAIMED_SLICES
    env = changed(aws(*pools), namespaces=[{"name": "team", "quota": {"p0": 2}}])
    (quota,) = quotas.resource_quotas(env)
    assert quota["spec"]["hard"] == {
        "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "2",
        "mig.nvidia.com.deviceclass.resource.k8s.io/devices": "0",
        "requests.nvidia.com/gpu.shared": "0",
    }


def test_priorities_are_classes_that_pods_name() -> None:
    work = {"name": "ci", "kind": "job", "pool": "p0", "image": "a:1", "priority": "low"}
    env = changed(aws(SLICED), priorities={"high": 1000, "low": -10}, workloads=[work])
    found = {item["metadata"]["name"]: item for item in quotas.priority_classes(env)}
    assert {name: entry["value"] for name, entry in found.items()} == {"high": 1000, "low": -10}
    assert not any(one["globalDefault"] for one in found.values())
    (job,) = workloads.manifests(env)
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "low"


def test_shares_of_slices_are_held_one_by_one_beside_whole_gpus() -> None:
    mig = {"kind": "mig", "layout": {"3g.20gb": 2}, "devices": [0, 1], "share": {"replicas": 2}}
    env = aws({"machine": "p4d.24xlarge", "spare": 1, "sharing": mig})
    found = {
        item["metadata"]["name"]: (item["spec"]["replicas"], gpu_limits(item))
        for item in quotas.placeholders(env)
    }
    assert found == {
        "spare-p0": (1, {"nvidia.com/gpu": "6"}),
        "spare-p0-mig-3g-20gb-shared": (8, {"nvidia.com/mig-3g.20gb.shared": "1"}),
    }
    selectors = [entry["spec"]["selector"]["matchLabels"] for entry in quotas.placeholders(env)]
    assert len({str(one) for one in selectors}) == 2
    parts = {"3g.20gb": 1, "gpu": 2}
    (quota,) = quotas.resource_quotas(changed(env, namespaces=[{"name": "team", "quota": {"p0": parts}}]))
    assert quota["spec"]["hard"] == {
        "requests.nvidia.com/gpu": "2",
        "requests.nvidia.com/mig-3g.20gb.shared": "1",
    }


WORK = [
    {"name": "shared", "kind": "pod", "pool": "t4", "image": "a:1"},
    {"name": "pinned", "kind": "job", "gpu_product": "NVIDIA-A100-PCIE-40GB", "image": "a:1"},
    {"name": "none", "kind": "deployment", "pool": "cpu", "image": "a:1"},
    {"name": "anywhere", "kind": "pod", "image": "a:1"},
]


def existing(**changed: Any) -> Environment:
    packer = {"packer": True, "version": "1.33.7"}
    return on("existing", *POOLS, **{"workloads": WORK, "scheduling": packer, **changed})


def kinds(env: Environment) -> list[str]:
    return [item["kind"] for item in scheduler.manifests(env)]


def object_of(env: Environment, kind: str) -> dict[str, Any]:
    return next(item for item in scheduler.manifests(env) if item["kind"] == kind)


def config(env: Environment) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(object_of(env, "ConfigMap")["data"]["config.yaml"])
    return found


def test_gpus_outweigh_everything_that_a_pod_has_not_asked_for() -> None:
    found = config(existing())
    (profile,) = found["profiles"]
    assert profile["schedulerName"] == "gpuform-packer"
    strategy = profile["pluginConfig"][0]["args"]["scoringStrategy"]
    assert strategy["type"] == "MostAllocated"
    gpus = [f"nvidia.com/{name}" for name in ("gpu", "gpu.shared", "mig-2g.10gb", "mig-3g.20gb")]
    weights = {**dict.fromkeys(gpus, 100), "cpu": 1, "memory": 1}
    assert {item["name"]: item["weight"] for item in strategy["resources"]} == weights
    off = {entry["name"] for entry in profile["plugins"]["score"]["disabled"]}
    assert off == {"NodeResourcesBalancedAllocation", "ImageLocality"}
    assert found["leaderElection"]["resourceName"] == "gpuform-packer"


def test_only_pods_that_ask_for_gpus_name_it() -> None:
    found = {
        made["metadata"]["name"]: pod_spec(made).get("schedulerName")
        for made in workloads.manifests(existing())
    }
    packer = "gpuform-packer"
    assert found == {"shared": packer, "pinned": packer, "none": None, "anywhere": None}
    for made in workloads.manifests(existing(scheduling={})):
        assert "schedulerName" not in pod_spec(made)


def test_pods_that_claim_name_it_too() -> None:
    work = {"name": "train", "kind": "pod", "pool": "p0", "image": "a:1"}
    env = changed(aws(CLAIMED, workloads=[work]), scheduling={"packer": True})
    (pod,) = [item for item in workloads.manifests(env) if item["kind"] == "Pod"]
    assert pod["spec"]["schedulerName"] == "gpuform-packer"


def test_another_configuration_is_another_config_map_and_another_pod() -> None:
    other = existing(pools=[{**POOLS[0], "selector": {"a": "b"}}], workloads=[])
    names = {object_of(env, "ConfigMap")["metadata"]["name"] for env in (existing(), other)}
    assert len(names) == 2
    for env in (existing(), other):
        (volume,) = object_of(env, "Deployment")["spec"]["template"]["spec"]["volumes"]
        assert volume["configMap"]["name"] == object_of(env, "ConfigMap")["metadata"]["name"]


def test_its_version_is_the_clusters() -> None:
    def image(env: Environment) -> str:
        pod = object_of(env, "Deployment")["spec"]["template"]["spec"]
        return str(pod["containers"][0]["image"])

    assert image(existing()) == "registry.k8s.io/kube-scheduler:v1.33.7"
    for minor in EKS_VERSIONS:
        named = {} if minor in versions.EKS_ADD_ONS else versions.EKS_ADD_ONS["1.36"]
        newest = aws(SLICED, version=minor, add_ons=named, images=NEWEST)
        env = changed(newest, scheduling={"packer": True})
        assert image(env).startswith(f"registry.k8s.io/kube-scheduler:v{minor}.")
    assert versions.KUBE_SCHEDULER[versions.KUBERNETES.rpartition(".")[0]] == versions.KUBERNETES


def test_the_embedded_cluster_runs_it_as_a_process() -> None:
    env = on("embedded", *POOLS, scheduling={"packer": True})
    assert "Deployment" not in kinds(env)
    assert kinds(env)[-1] == "ConfigMap", "what it runs with comes last, when it may already do what it does"
    assert set(kinds(existing())) - set(kinds(env)) == {"Deployment", "PodDisruptionBudget"}


@pytest.mark.parametrize("cluster", ["existing", "aws"])
def test_the_policies_hold(cluster: str) -> None:
    env = existing()
    if cluster == "aws":
        env = changed(aws({**SLICED, "spare": 1}), scheduling={"packer": True})
    judged = record(env.resolved()).judged()
    assert "kubernetes:apps/v1:Deployment" in {item.type for item in judged}
    assert [item for item in judge(RULES, judged) if item.rule.severity != "low"] == []
