"""The platform's program under mocks: its resources, their shape, and what comes after what."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from tests.build.openstack_stacks import BURST, T4, small
from tests.components.programs import MIG, PLATFORMS, PROGRAMS, QUEUED
from tests.fakes.recorder import Recorded, Recorder, record, record_once

pytestmark = pytest.mark.unit

RELEASE = "kubernetes:helm.sh/v3:Release"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
NODES = "gpuform:nodes:SimulatedNodes"
KUEUE = "kubernetes:kueue.x-k8s.io/v1beta2"
POOL_NODES = "gpuform:nodes:PoolNodes"
LAYOUT = "gpuform:nodes:MigLayout"


def recorded(program: str) -> Recorder:
    return record_once(PLATFORMS[program])


def find_resource(program: str, name: str) -> Recorded:
    """By kind and name."""
    (resource,) = [r for r in recorded(program).resources if f"{r.type.rpartition(':')[2]} {r.name}" == name]
    return resource


ORDER: list[tuple[str, str, tuple[str, ...]]] = [
    ("health", "Deployment health-Deployment", (
        "ClusterRoleBinding health-ClusterRoleBinding", "RoleBinding health-RoleBinding-gpuform-health",
        "ConfigMap health-ConfigMap")),
    ("health", "ServiceMonitor health-ServiceMonitor", ("Release monitoring-release",)),  # brings its kind
    ("monitoring", "Release gpu-operator-release", (
        "Release monitoring-release", "ConfigMap monitoring-counters")),
    # Deleted after it: the running operator would set its labels again.
    ("existing", "Release gpu-operator-release", ("GpuOperatorRemoval gpu-operator-removal",)),
    ("monitoring", "PrometheusRule monitoring-alerts-rules", ("Release monitoring-release",)),
    ("monitoring", "ConfigMap monitoring-dashboard-fleet", ("Release monitoring-release",)),
    ("monitoring", "Release monitoring-release", ("Namespace namespaces-monitoring", "PoolNodes pools-t4")),
    ("monitoring of a device plugin", "Release dcgm-exporter-release", (
        "ConfigMap monitoring-counters", "Release monitoring-release", "Release device-plugin-release")),
    ("packing", "Deployment workloads-team-w", (
        "Deployment packer-Deployment-gpuform-packer", "ResourceQuota room-quota-team",
        "PriorityClass room-priority-high")),
    ("packing", "Deployment packer-Deployment-gpuform-packer", (
        "ConfigMap packer-ConfigMap", "Role packer-Role-gpuform-packer-lease",
        "RoleBinding packer-RoleBinding-gpuform-packer-lease",
        "ClusterRoleBinding packer-ClusterRoleBinding-gpuform-packer-scheduler")),
    ("queues", "Release queues-release", ("Namespace namespaces-kueue-system",)),
    # What is created later is deleted earlier: Kueue drains a queue before its flavors and CRDs go.
    *(("queues", f"ClusterQueue queues-ClusterQueue-{team}", (
        "Release queues-release", "ResourceFlavor queues-ResourceFlavor-t4", "Cohort queues-Cohort-lab",
        "LocalQueue queues-LocalQueue-a-team", "LocalQueue queues-LocalQueue-a--b-team"))
      for team in ("team", "b")),
    *(("queues", name, ("Release queues-release",)) for name in (
        "ResourceFlavor queues-ResourceFlavor-t4", "Cohort queues-Cohort-lab",
        "LocalQueue queues-LocalQueue-a-team")),
    ("queues", "Deployment workloads-a-w", (
        "ClusterQueue queues-ClusterQueue-team", "Release queues-release")),
    # Their operators remove the finalizers of what they scale and serve.
    ("scaling", "ScaledObject workloads-default-triton-ScaledObject", (
        "Release scaling-release", "ScalingRemoval workloads-default-triton-scaling")),
    ("scaling", "ScalingRemoval workloads-default-triton-scaling", ("Deployment workloads-default-triton",)),
    ("scaling", "Release scaling-release", ("Namespace namespaces-gpuform-keda",)),
    ("serving", "InferenceService workloads-default-triton", (
        "Release kserve-kserve", "ServingRuntime workloads-default-triton-runtime")),
    ("serving", "ScaledObject workloads-default-triton-ScaledObject", (
        "InferenceService workloads-default-triton",)),
    ("serving", "Release kserve-kserve", (
        "Release kserve-kserve-crd", "Release kserve-cert-manager", "Namespace namespaces-gpuform-kserve")),
    ("serving", "CustomResourceDefinitionPatch kserve-kept-crd", ("Release kserve-kserve-crd",)),
    ("keeper", "Deployment pool-keeper-deployment", (
        *(f"PoolNodes pools-{name}" for name in ("gpu-t4", "burst", "a100")),
        *(f"{kind} pool-keeper-{name}" for kind, name in (
            ("ClusterRoleBinding", "cluster-role-binding"), ("RoleBinding", "role-binding"),
            ("ConfigMap", "program"))))),
]  # fmt: skip


@pytest.mark.parametrize(("program", "later", "earlier"), ORDER)
def test_each_part_comes_after_those_it_needs(program: str, later: str, earlier: tuple[str, ...]) -> None:
    assert {*earlier} <= {key.rpartition(":")[2] for key in find_resource(program, later).after}


@pytest.mark.parametrize(
    ("program", "later", "earlier"),
    [
        # Of its own, not of its parent: the parent stays when only scale is removed, and then orders nothing.
        ("scaling", "ScaledObject workloads-default-triton-ScaledObject", "scaling-release"),
        ("serving", "InferenceService workloads-default-triton", "kserve-kserve"),
        # The engine knows dependencies of deleted resources only: those of the component `Workloads` stay.
        ("queues", "GpuDeployment workloads-a-w", "queues-ClusterQueue-team"),
        ("queues", "GpuDeployment workloads-a-w", "queues-ClusterQueue-b"),
        ("queues", "GpuDeployment workloads-a-w", "queues-removal"),
    ],
)
def test_resources_that_are_removed_alone_have_their_own_dependency(
    program: str, later: str, earlier: str
) -> None:
    dependencies = find_resource(program, later).request.dependencies
    assert [urn for urn in dependencies if urn.endswith(f"::{earlier}")]


@pytest.mark.parametrize("only", [("nodes",), ("nodes", "layouts")])
@pytest.mark.parametrize("program", ["existing", "keeper", "aws-prod"])
def test_beside_a_gitops_controller_only_nodes_and_layouts_are_registered(
    program: str, only: tuple[str, ...]
) -> None:
    whole = record_once(PROGRAMS[program])
    found = {item.name: item for item in record_once(PROGRAMS[program], only=only).resources}
    same = {item.name: item.inputs for item in whole.resources if item.name in found}
    assert same == {name: item.inputs for name, item in found.items()}, "a later whole `up` replaces nothing"
    left_out = {item.type for item in whole.resources if item.name not in found}
    kept = {item.type for item in found.values() if item.type not in left_out}
    assert {"gpuform:platform:NodePools", POOL_NODES} & kept
    assert (LAYOUT in kept) == ("layouts" in only)
    assert not {item for item in kept if item.startswith("kubernetes:core/v1")}
    assert {"gpuform:platform:GpuOperator", CONFIG_MAP} <= left_out
    if program == "aws-prod":
        assert {"kubernetes:karpenter.sh/v1:NodePool", "gpuform:aws:Karpenter"} <= kept


@pytest.mark.parametrize(
    ("program", "names"),
    [
        ("plain", ("monitoring", "dcgm", "packer", "room", "queues", "scaling", "kserve", "health")),
        ("scaling", ("kserve",)),
    ],
)
def test_parts_that_are_not_declared_have_no_resource(program: str, names: tuple[str, ...]) -> None:
    assert not [resource.name for resource in recorded(program).resources if resource.name.startswith(names)]


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("monitoring", "other counters", "ConfigMap monitoring-counters"),
        ("packing", "packing of slices", "ConfigMap packer-ConfigMap"),
    ],
)
def test_the_resource_name_stays_when_the_object_is_another(before: str, after: str, name: str) -> None:
    old, new = (find_resource(program, name).inputs["metadata"]["name"] for program in (before, after))
    assert old != new


def test_every_simulated_node_is_labelled_and_every_gpu_node_tainted() -> None:
    pools = {pool.name.removeprefix("pools-"): pool.inputs for pool in recorded("local").of(NODES)}
    nodes = [name for inputs in pools.values() for name in inputs["nodes"]]
    assert sorted(nodes) == [
        *("a100-7-0", "a100-mig-0", "a100-whole-0", "cpu-0", "cpu-1", "g4dn-shared-0"),
        *("t4-shared-0", "t4-shared-1", "v100-0"),
    ]
    gpu = [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    for pool, inputs in pools.items():
        assert inputs["labels"]["gpuform.io/pool"] == pool
        assert "kubernetes.io/hostname" not in inputs["labels"], "the only field in which they differ"
        assert inputs["taints"] == ([] if pool == "cpu" else gpu), pool


def test_the_operators_hook_may_upgrade_its_crds() -> None:
    """The chart's values require both together."""
    inputs = find_resource("local", "Release gpu-operator-release").inputs
    assert inputs["disableOpenapiValidation"] is True
    assert inputs["values"]["operator"]["upgradeCRD"] is True


@pytest.mark.parametrize("component", ["GpuOperator", "Monitoring"])
def test_a_component_has_its_releases_status_as_output(
    component: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {}

    def register(self: pulumi.ComponentResource, values: dict[str, Any]) -> None:
        outputs[type(self).__name__] = values

    monkeypatch.setattr(pulumi.ComponentResource, "register_outputs", register)
    record(PLATFORMS["monitoring"])
    assert isinstance(outputs[component]["status"], pulumi.Output)


def test_monitoring_is_installed_without_gpus_of_which_rules_and_dashboards_are() -> None:
    pools = [{"name": "cpu", "machine": "m6i.4xlarge", "nodes": 1}]
    embedded = {**PLATFORMS["local"], "pools": pools, "workloads": []}
    declared = record({**embedded, "monitoring": {"dashboards": False}})
    assert "monitoring-release" in {item.name for item in declared.of("kubernetes:helm.sh/v3:Release")}


def test_the_release_names_the_config_maps_that_are_made() -> None:
    inputs = find_resource("local", "Release gpu-operator-release").inputs
    maps = [config_map.inputs["metadata"] for config_map in recorded("local").of(CONFIG_MAP)]
    values = inputs["values"]
    names = {values[part]["config"]["name"] for part in ("devicePlugin", "migManager", "dcgmExporter")}
    assert names == {metadata["name"] for metadata in maps if metadata["namespace"] == "gpu-operator"}
    assert inputs["atomic"] is True
    assert inputs["chart"].endswith("charts/gpu-operator-sim")


def test_every_pool_with_mig_gpus_has_a_layout_workflow() -> None:
    layouts = {r.name: r.inputs for r in recorded("local").of(LAYOUT)}
    assert set(layouts) == {"mig-a100-mig", "mig-a100-7", "mig-a100-whole"}
    assert layouts["mig-a100-mig"]["config"] == "3g.20gb-2x2g.10gb"
    assert layouts["mig-a100-mig"]["offers"] == {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 2}
    assert layouts["mig-a100-mig"]["selector"] == "gpuform.io/pool=a100-mig"


def test_an_existing_cluster_gets_labels_and_taints_and_no_nodes() -> None:
    assert recorded("existing").of(NODES) == []
    pools = {r.name: r.inputs for r in recorded("existing").of(POOL_NODES)}
    assert pools["pools-a100"]["selector"] == "gpu=a100,zone=b"
    assert pools["pools-a100"]["labels"]["gpuform.io/pool"] == "a100"
    assert pools["pools-t4"]["labels"]["nvidia.com/device-plugin.config"] == "slice-4"
    assert pools["pools-t4"]["context"] == "prod"
    removal = find_resource("existing", "GpuOperatorRemoval gpu-operator-removal").inputs
    assert removal == {
        **{key: pools["pools-t4"][key] for key in ("kubeconfig", "context")},
        "pools": ["a100", "t4"],
        "simulated": False,
    }
    (release,) = recorded("existing").of(RELEASE)
    assert (release.inputs["chart"], release.inputs["version"]) == ("gpu-operator", "v26.7.1")


def test_the_schedulers_pods_and_rights() -> None:
    template = find_resource("packing", "Deployment workloads-team-w").inputs["spec"]["template"]
    assert template["spec"]["schedulerName"] == "gpuform-packer"
    binding = find_resource("packing", "RoleBinding packer-RoleBinding-gpuform-packer-authentication").inputs
    assert binding["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    assert binding["metadata"]["namespace"] == "kube-system"


def test_the_release_of_kueue_is_the_published_chart_and_a_failed_install_stays() -> None:
    """A rollback would leave the aggregated ClusterRoles behind, which Helm does not take over."""
    inputs = find_resource("queues", "Release queues-release").inputs
    assert (inputs["chart"], inputs["version"]) == ("oci://registry.k8s.io/kueue/charts/kueue", "0.19.2")
    assert (inputs["namespace"], inputs["atomic"]) == ("kueue-system", False)


def test_a_queue_that_drains_holds_up_no_other_and_has_time() -> None:
    for queue in recorded("queues").of(f"{KUEUE}:ClusterQueue"):
        assert not [key for key in queue.after if "ClusterQueue" in key]
        assert queue.request.customTimeouts.delete == "60m"


def test_a_topology_is_deleted_after_its_flavor_and_with_another_content_is_another_object() -> None:
    """Kueue keeps a topology while a flavor names it."""

    def made(*levels: str) -> str:
        changed = record({**QUEUED, "queues": {**QUEUED["queues"], "topology": {"t4": list(levels)}}})
        topology = changed.one(f"{KUEUE}:Topology")
        (flavor,) = [
            flavor_
            for flavor_ in changed.of(f"{KUEUE}:ResourceFlavor")
            if flavor_.inputs["metadata"]["name"] == topology.inputs["metadata"]["name"]
        ]
        assert f"{KUEUE}:Topology {topology.name}" in flavor.after
        return topology.name

    assert made() != made("example.com/rack")


def test_workloads_outside_of_queues_wait_for_none() -> None:
    free = {**QUEUED, "workloads": [{**QUEUED["workloads"][0], "namespace": "other", "queue": None}]}
    assert not record(free).one("gpuform:workloads:GpuDeployment").request.dependencies


def test_kueue_is_stopped_before_anything_of_it_is_deleted() -> None:
    removal = find_resource("queues", "KueueRemoval queues-removal")
    assert removal.inputs == {"kubeconfig": "/k"}
    resources = [r for r in recorded("queues").resources if r.type == RELEASE or r.type.startswith(KUEUE)]
    keys = {f"{r.type} {r.name}" for r in resources if r.name.startswith("queues-")}
    assert len(keys) == 8
    assert keys <= removal.after


def test_kserve_has_its_time_limits_and_keeps_its_crd() -> None:
    keda = find_resource("scaling", "Release scaling-release").inputs
    assert (keda["chart"], keda["atomic"]) == ("keda", True)
    service = find_resource("serving", "InferenceService workloads-default-triton")
    assert service.request.customTimeouts.create == "62m"
    assert list(service.request.ignoreChanges) == [], "KServe owns the number of pods"
    crd = recorded("serving").one("kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinitionPatch")
    assert crd.inputs["metadata"] == {
        "name": "clusterstoragecontainers.serving.kserve.io",
        "annotations": {"helm.sh/resource-policy": "keep"},
    }, "an upgrade of the chart deletes it otherwise"


def test_pool_nodes_are_waited_for_with_the_keepers_field_manager() -> None:
    pools = {item.name: item.inputs for item in recorded("keeper").of(POOL_NODES)}
    assert {name: inputs["joining"]["nodes"] for name, inputs in pools.items()} == {
        "pools-gpu-t4": 1, "pools-burst": 1, "pools-a100": 1,
    }  # fmt: skip
    assert {inputs["selector"] for inputs in pools.values()} == {
        f"magnum.openstack.org/nodegroup={pool['name']}" for pool in (T4, BURST, MIG)
    }
    assert len({inputs["manager"] for inputs in pools.values()}) == 3
    layouts = {item.name: item.inputs["kept"] for item in recorded("keeper").of(LAYOUT)}
    assert layouts == {"mig-burst": True, "mig-a100": True}
    keeper = find_resource("keeper", "Deployment pool-keeper-deployment")
    assert not [item for item in keeper.after if item.startswith(RELEASE)], "nodes join meanwhile"


def test_a_layout_has_more_time_where_nodes_reboot() -> None:
    def limit(**more: object) -> object:
        return record(small({**MIG, **more})).one(LAYOUT).inputs.get("timeoutSeconds")

    assert limit() == limit(relayout={"in_use": "refuse"}) == 1800
    assert limit(relayout={"timeout_seconds": 60}) == 60
    assert limit(reset="gpu") is None, "the resource's own"
