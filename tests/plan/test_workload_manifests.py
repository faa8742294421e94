"""Workloads' objects: what they request, where they may run, and what the restricted level requires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.config import load
from infra.model.base.errors import InputError
from infra.model.workload import matching
from infra.model.workload.workload import PodWorkload
from infra.plan import gpu_operator, quotas, workloads
from tests.build.aws_environments import CLAIMED, aws
from tests.build.environments import gpus, on, pod_spec

pytestmark = pytest.mark.unit

LOCAL = load(Path(__file__).parents[2] / "Pulumi.local.yaml")
IMAGE = "tensorflow/tensorflow:2.12.0-gpu"


def manifest(pools: list[dict[str, Any]], **workload: Any) -> dict[str, Any]:
    env = on("embedded", *pools, workloads=[{"name": "w", **workload}])
    return workloads.manifests(env)[0]


T4 = {"machine": "g2.5xlarge"}
SHARED = {**T4, "sharing": {"kind": "time_slicing", "replicas": 4}}
CERN, ALL, TWO = {"3g.20gb": 1, "2g.10gb": 2}, "all-1g.5gb", {"replicas": 2}


def _cut(layout: Any, machine: str = "g4.p4.40g", **more: Any) -> dict[str, Any]:
    return {"machine": machine, "sharing": {"kind": "mig", "layout": layout, **more}}


CUT, SEVEN = _cut(CERN, "g4.p1.40g"), _cut(ALL, "g4.p1.40g")
CPU = {"machine": "m6i.xlarge"}


P0, PRODUCT = {"pool": "p0"}, {"gpu_product": "NVIDIA-A100-PCIE-40GB"}
BIG, SMALL = {"slice": "3g.20gb"}, {"slice": "2g.10gb"}


@pytest.mark.parametrize(
    ("pools", "workload", "resource", "number"),
    [
        ([T4], P0, "gpu", "1"),
        ([SHARED], P0, "gpu.shared", "1"),
        ([CUT], {**P0, **SMALL, "count": 2}, "mig-2g.10gb", "2"),
        ([SEVEN], P0, "mig-1g.5gb", "1"),
        ([CUT, {"machine": "g4.p4.40g"}], PRODUCT, "gpu", "1"),
        ([CUT], {**PRODUCT, **BIG}, "mig-3g.20gb", "1"),
        ([_cut(CERN, devices=[0])], {**P0, **BIG}, "mig-3g.20gb", "1"),
        ([_cut(CERN, devices=[0])], P0, "gpu", "1"),
        ([_cut(CERN, devices=[0])], {**P0, "count": 3}, "gpu", "3"),
        ([_cut(ALL, devices=[0], share=TWO)], {**P0, "count": 3}, "gpu", "3"),
        ([_cut(CERN, share=TWO)], {**P0, **BIG}, "mig-3g.20gb.shared", "1"),
        ([_cut(CERN, share={**TWO, "rename": False})], {**P0, **BIG}, "mig-3g.20gb", "1"),
        ([_cut(ALL, share=TWO)], P0, "mig-1g.5gb.shared", "1"),
        ([_cut(ALL, strategy="single")], P0, "gpu", "1"),
        ([T4, CPU], {}, None, None),
        ([T4, CPU], {"pool": "p1"}, None, None),
    ],
)
def test_the_request_follows_from_the_pool(
    pools: list[dict[str, Any]], workload: dict[str, Any], resource: str | None, number: str
) -> None:
    env = on("embedded", *pools, workloads=[workload])
    expected = {f"nvidia.com/{resource}": number} if resource else {}
    assert gpus(workloads.manifests(env)[0]) == expected
    chosen = [pool for pool in env.pools if pool.name == workload.get("pool")]
    assert not chosen or matching.requested_resource(chosen, env.workloads[0]) == next(iter(expected), None)


def test_a_workload_tolerates_the_taints_of_its_own_pools_only() -> None:
    own = {"key": "team", "value": "a", "effect": "NoExecute"}
    spec = pod_spec(manifest([{**SHARED, "taints": [own]}, {**CUT, "taints": [{"key": "other"}]}], pool="p0"))
    assert spec["nodeSelector"] == {"gpuform.io/pool": "p0"}
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"},
    ]
    none = pod_spec(manifest([SHARED, CPU]))
    assert not {"tolerations", "nodeSelector"} & none.keys(), "it requests no GPU"


def test_pods_tolerate_the_gpu_taint_of_an_existing_cluster_with_any_value() -> None:
    """GKE's is nvidia.com/gpu=present."""
    work = {"name": "w", "kind": "pod", "pool": "t4", "image": "a:1"}
    env = on("existing", {"name": "t4", "machine": "g2.5xlarge"}, workloads=[work])
    (found,) = [item for item in workloads.manifests(env) if item["kind"] == "Pod"]
    assert found["spec"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]


def test_the_three_kinds() -> None:
    deployment = manifest([SHARED], pool="p0", kind="deployment", replicas=3)
    assert (deployment["kind"], deployment["spec"]["replicas"]) == ("Deployment", 3)
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert pod_spec(deployment)["restartPolicy"] == "Always"
    job = manifest([SHARED], pool="p0", kind="job", parallelism=2)
    assert (job["kind"], job["spec"]["parallelism"], job["spec"]["completions"]) == ("Job", 2, 2)
    assert pod_spec(job)["restartPolicy"] == "Never"
    assert job["metadata"]["annotations"] == {
        "pulumi.com/skipAwait": "true",
        "pulumi.com/deletionPropagationPolicy": "background",
    }
    assert "annotations" not in manifest([SHARED], pool="p0", kind="job", wait_minutes=30)["metadata"]
    assert manifest([SHARED], pool="p0")["kind"] == "Pod"


SERVED = {"kind": "deployment", "pool": "p0", "replicas": 3, "service": {"port": 80, "target_port": 8000}}


def several(workload: dict[str, Any]) -> list[dict[str, Any]]:
    env = on("embedded", {"nodes": 5, **T4}, workloads=[{"name": "w", **workload}])
    return list(workloads.manifests(env))


def test_a_service_finds_the_port_of_the_container_by_its_name() -> None:
    service, deployment = several({**SERVED, "service": {**SERVED["service"], "ready_path": "/ready"}})
    (port,) = service["spec"]["ports"]
    assert (service["kind"], service["spec"]["type"], port["port"]) == ("Service", "ClusterIP", 80)
    container = pod_spec(deployment)["containers"][0]
    assert container["ports"] == [{"name": port["targetPort"], "containerPort": 8000, "protocol": "TCP"}]
    assert container["readinessProbe"] == {"httpGet": {"path": "/ready", "port": port["targetPort"]}}
    made = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= made.items()


def rolling(surge: int, unavailable: int) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


ROLLING = rolling(0, 1)
ONE_L4 = {"machine": "g6.xlarge", "elastic": {"max": {"nvidia.com/gpu": 1}}}
TWO_L4 = {"machine": "g6.xlarge", "elastic": {"max": {"nvidia.com/gpu": 2}}}
FOUR_SHARES = {"machine": "g6.xlarge", "elastic": {"max": {"nvidia.com/gpu.shared": 4}},
               "sharing": {"kind": "time_slicing", "replicas": 4}}  # fmt: skip
APART = {**ONE_L4, "taints": [{"key": "team"}]}
MODELS = {"gpu": {"models": ["L4"], "count": [1, 8]}, "elastic": {"max": {"nvidia.com/gpu": 8}}}
JOB = {"kind": "job", "pool": "p0"}


@pytest.mark.parametrize(
    ("pools", "workload", "others", "strategy"),
    [
        ([ONE_L4], {}, [], ROLLING),  # bayesimpact/bayes-platform#776: a pool of at most one node
        ([TWO_L4], {}, [], None),
        ([TWO_L4], {"replicas": 2}, [], ROLLING),
        ([TWO_L4], {}, [JOB], ROLLING),
        ([TWO_L4], {"update": {"kind": "recreate"}, "replicas": 2}, [], {"type": "Recreate"}),
        ([{**ONE_L4, "capacity": ["on_demand", "spot"]}], {}, [], None),  # each type has the whole limit
        ([{**ONE_L4, "elastic": {"max": {"cpu": 7}}}], {}, [], ROLLING),
        ([{**ONE_L4, "elastic": {"max": {"cpu": 8}}}], {}, [], None),
        # From four replicas on, Kubernetes' own way ends an old pod without waiting for a new one.
        ([{**ONE_L4, "elastic": {"max": {"cpu": 16}}}], {"replicas": 4}, [], None),
        ([FOUR_SHARES], {"replicas": 3, "cpu": 0.5}, [], None),
        ([FOUR_SHARES], {"replicas": 3, "cpu": 0.5}, [{**JOB, "cpu": 0.5}], ROLLING),
        ([FOUR_SHARES], {"cpu": 2}, [], ROLLING),  # kubelet and DaemonSets leave less than two times 2 of 4
        ([FOUR_SHARES], {"memory": "8Gi"}, [], ROLLING),
        ([MODELS], {"count": 8}, [], ROLLING),
        ([MODELS], {}, [], None),
        ([{"machine": "m6i.xlarge", "elastic": {"max": {"cpu": 4}}}], {"cpu": 2}, [], ROLLING),
        ([{"machine": "m6i.xlarge", "nodes": 1}], {"cpu": 2}, [], ROLLING),
        ([{"machine": "m6i.xlarge", "nodes": 2}], {"cpu": 2}, [], None),
        ([ONE_L4, APART], {"pool": None, "gpu": {"memory_gib": 8}}, [], None),
        ([ONE_L4, APART], {"pool": None, "gpu": {"memory_gib": 8}}, [JOB], ROLLING),
        ([CLAIMED], {}, [], ROLLING),
        ([ONE_L4], {"pool": None}, [], None),  # it runs on any node without GPUs
    ],
)
def test_an_old_pod_ends_first_where_the_limit_has_no_room_for_a_new_one(
    pools: list[dict[str, Any]], workload: dict[str, Any], others: list[dict[str, Any]], strategy: Any
) -> None:
    work = {"name": "w", "kind": "deployment", "image": "a:1", "pool": "p0", **workload}
    kept = {key: value for key, value in work.items() if value is not None}
    more = [{"name": f"o{index}", "image": "a:1", **item} for index, item in enumerate(others)]
    env = aws(*pools, workloads=[kept, *more])
    assert workloads.controller(env, env.workloads[0])["spec"].get("strategy") == strategy
    alone = aws(*pools, workloads=more)  # as a program of one's own declares it, beside the stack
    assert workloads.controller(alone, env.workloads[0])["spec"].get("strategy") == strategy


@pytest.mark.parametrize(("replicas", "strategy"), [(1, None), (2, ROLLING)])
def test_a_group_that_may_not_grow_any_more_ends_an_old_pod_first(replicas: int, strategy: Any) -> None:
    pool = {"machine": "gpu.l4", "elastic": {"min": 1, "max": {"nodes": 2}}}
    flavors = {"gpu.l4": {"gpu": "L4", "count": 1, "vcpu": 8, "memory_gib": 32}}
    work = {"kind": "deployment", "pool": "p0", "replicas": replicas}
    env = on("openstack", pool, cluster={"flavors": flavors}, workloads=[work])
    assert workloads.manifests(env)[0]["spec"].get("strategy") == strategy


@pytest.mark.parametrize(
    ("update", "strategy"),
    [
        (None, ROLLING),
        ({"kind": "recreate"}, {"type": "Recreate"}),
        ({"kind": "rolling", "step": 2}, rolling(0, 2)),
        ({"kind": "surge", "step": 2}, rolling(2, 0)),
    ],
)
def test_an_update_needs_no_gpu_beside_those_of_the_pods_unless_it_says_so(
    update: Any, strategy: Any
) -> None:
    _, deployment = several({**SERVED, **({"update": update} if update else {})})
    assert deployment["spec"].get("strategy") == strategy


MODEL = {"service": {"port": 80, "ready_path": "/ready"}}
GROWS = {"machine": "p5.48xlarge", "elastic": {"max": {"nvidia.com/gpu": 16}}}


@pytest.mark.parametrize(
    ("pool", "workload", "minutes"),
    [
        # kserve#3795, pulumi-kubernetes#712: node, operands, image and model take longer than 600 s.
        (GROWS, {**MODEL, "count": 8}, 15 + 21 + 10 + 31),
        (GROWS, {}, 15 + 21 + 10),
        (GROWS, {"service": {"port": 80}}, 15 + 21 + 10),
        ({"machine": "m6i.xlarge", "elastic": {"max": {"cpu": 40}}}, {}, 15 + 10),
        ({**SHARED, "machine": "g6.xlarge", "nodes": 1}, MODEL, 10 + 31),
        ({**SHARED, "machine": "g6.xlarge", "nodes": 1}, {}, None),  # Kubernetes' own default suffices
        ({**SHARED, "machine": "g6.xlarge", "nodes": 1}, {"start_minutes": 10}, None),
        (GROWS, {**MODEL, "start_minutes": 5}, 5),
    ],
)
def test_a_pod_has_the_time_that_its_start_may_take(
    pool: dict[str, Any], workload: dict[str, Any], minutes: int | None
) -> None:
    work = {"name": "w", "kind": "deployment", "image": "a:1", "pool": "p0", **workload}
    spec = workloads.manifests(aws(pool, workloads=[work]))[-1]["spec"]
    assert spec.get("progressDeadlineSeconds") == (minutes and minutes * 60)


@pytest.mark.parametrize(
    ("kind", "operator", "seconds"),
    [
        ("existing", {}, (10 + 21) * 60),  # the operator installs the driver
        ("existing", {"driver": "host"}, None),
        ("embedded", {}, None),
    ],
)
def test_operands_count_where_they_install_the_driver(
    kind: str, operator: dict[str, Any], seconds: int | None
) -> None:
    work = {"kind": "deployment", "pool": "p0"}
    (found,) = workloads.manifests(on(kind, T4, gpu_operator=operator, workloads=[work]))
    assert found["spec"].get("progressDeadlineSeconds") == seconds


def test_of_two_colours_the_first_is_made_first() -> None:
    service, deployment = several({**SERVED, "update": {"kind": "blue_green"}})
    assert deployment["metadata"]["name"] == "w-blue"
    assert service["spec"]["selector"] == {"app.kubernetes.io/name": "w", "gpuform.io/colour": "blue"}
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_variables_are_in_order_of_name() -> None:
    found = manifest([T4], pool="p0", env={"B": "x", "A": 1})
    assert pod_spec(found)["containers"][0]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "x"},
    ]


def test_a_workload_of_a_program_is_checked_as_one_of_the_stack() -> None:
    work = PodWorkload(name="w", kind="pod", image=IMAGE, pool="t4-sharde")
    with pytest.raises(
        InputError, match=r"^workload\.pool: unknown pool 't4-sharde'; did you mean t4-shared"
    ):
        workloads.check(LOCAL, work)
    workloads.check(LOCAL, PodWorkload(name="w", kind="pod", image=IMAGE, pool="t4-shared"))


def test_the_default_namespace_is_not_made() -> None:
    env = on("embedded", T4, workloads=[{"pool": "p0"}])
    assert [item["metadata"]["name"] for item in quotas.namespaces(env)] == ["gpu-operator"]


def test_pods_tolerate_the_taints_that_a_platform_keeps_on_the_pools_nodes() -> None:
    """GKE's own value of the GPU taint, AKS's spot nodes, and DWS."""
    keys = [("nvidia.com/gpu", "present"), ("kubernetes.azure.com/scalesetpriority", "spot")]
    keys += [("cloud.google.com/gke-queued", "true")]
    taints = [{"key": key, "value": value} for key, value in keys]
    pool = {"gpu": {"models": ["L4"], "count": 1}, "taints": taints}
    env = on("existing", pool, workloads=[{"pool": "p0"}])
    (pod,) = workloads.manifests(env)
    tolerated = {(one["key"], one.get("value")) for one in pod["spec"]["tolerations"]}
    assert tolerated == {("nvidia.com/gpu", None), *keys[1:]}
    operands = {one["key"] for one in gpu_operator.gpu_tolerations(env)}
    assert operands >= {key for key, _ in keys}


def test_a_deployment_may_be_scaled_to_nothing() -> None:
    work = {"name": "w", "kind": "deployment", "pool": "p0", "replicas": 0, "update": {"kind": "rolling"}}
    (deployment,) = workloads.manifests(on("embedded", {"machine": "g2.5xlarge"}, workloads=[work]))
    assert deployment["spec"]["replicas"] == 0
