"""Workloads as components: in a stack, and one by one in a user's own program."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pulumi
import pytest

from components.workloads import (
    COMPONENTS,
    GpuDeployment,
    GpuJob,
    GpuPod,
    WorkloadArgs,
    Workloads,
    WorkloadsArgs,
)
from gpuform.provider.handler import Call, Engine
from gpuform.provider.own.provider import GpuformProvider
from gpuform.provider.properties import from_struct, to_struct
from infra.config import parse
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.workload.workload import DeploymentWorkload, JobWorkload, PodWorkload
from infra.program.workloads import arguments
from tests.build.aws_environments import TABLE
from tests.components.programs import REPLICAS, WORKLOADS, workloads_alone
from tests.fakes.recorder import record, run

pytestmark = pytest.mark.unit

BLUE_GREEN = "gpuform:workloads:BlueGreen"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"


def test_each_kind_of_workload_is_registered() -> None:
    assert {
        ("kubernetes:core/v1:Pod", "workloads-default-w0"),
        ("kubernetes:batch/v1:Job", "workloads-default-w1"),
        ("kubernetes:core/v1:Service", "workloads-default-w2-service"),
        (DEPLOYMENT, "workloads-default-w2"),
        (BLUE_GREEN, "workloads-default-w3"),
        ("gpuform:workloads:GpuDeployment", "workloads-default-w3"),
    } <= set(record(workloads_alone(*WORKLOADS)).registered())


def test_the_pods_of_an_indexed_job_find_each_other_before_the_job_starts() -> None:
    recorded = record(workloads_alone({**WORKLOADS[1], "indexed": True, "parallelism": 2}))
    job = recorded.one("kubernetes:batch/v1:Job")
    assert [key for key in job.after if key.endswith("workloads-default-w0-service")]


@pytest.mark.parametrize("others", [{}, {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}])
def test_a_running_job_of_an_earlier_version_is_not_replaced(others: dict[str, str]) -> None:
    """Neither field of a Job can be changed; another annotation still replaces it."""
    path = "spec.template.metadata.annotations"
    names = {"spec.podFailurePolicy", *([f'{path}["{key}"]' for key in labels.KEPT] if others else [path])}
    for notes, expected in (({**labels.KEPT, **others}, names), ({}, {"spec.podFailurePolicy"})):
        template = {"metadata": {"annotations": notes}, "spec": {"containers": [{"name": "a"}]}}
        metadata = {"name": "train", "namespace": "default"}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
        recorded = run(partial(GpuJob, "train", WorkloadArgs(controller=job)))
        assert set(recorded.one("kubernetes:batch/v1:Job").request.ignoreChanges) == expected


def test_an_update_waits_for_a_job_as_long_as_is_declared() -> None:
    recorded = record(workloads_alone({**WORKLOADS[1], "wait_minutes": 90}))
    assert recorded.one("kubernetes:batch/v1:Job").request.customTimeouts.create == "90m"


@pytest.mark.parametrize(
    ("work", "update"),
    [
        ({}, "160m"),  # one pod after the other
        ({"update": {"kind": "rolling", "step": 3}}, "80m"),
        ({"update": {"kind": "recreate"}}, "40m"),
    ],
)
def test_an_update_waits_as_long_as_its_pods_may_take(work: dict[str, Any], update: str) -> None:
    """A Service waits for its endpoints, so for the same pods."""
    recorded = record(workloads_alone({**REPLICAS, "start_minutes": 40, **work}))
    for kind in (DEPLOYMENT, "kubernetes:core/v1:Service"):
        timeouts = [r.request.customTimeouts for r in recorded.of(kind) if "workloads-default-w0" in r.name]
        assert [(limits.create, limits.update) for limits in timeouts] == [("40m", update)]
    spec = recorded.one(DEPLOYMENT).inputs["spec"]
    assert spec["progressDeadlineSeconds"] == 2400


def test_an_update_waits_for_a_pod_as_long_as_its_start_may_take() -> None:
    recorded = record(workloads_alone({**WORKLOADS[0], "start_minutes": 40}, WORKLOADS[0]))
    pods = {pod.name: pod.request.customTimeouts.create for pod in recorded.of("kubernetes:core/v1:Pod")}
    assert pods == {"workloads-default-w0": "40m", "workloads-default-w1": "10m"}


def test_neither_a_service_nor_its_deployment_waits_for_the_other() -> None:
    """Each would wait for ever: the official provider's Service for its endpoints."""
    recorded = record(workloads_alone(REPLICAS))
    for kind in (DEPLOYMENT, "kubernetes:core/v1:Service"):
        assert not [key for key in recorded.one(kind).after if "workloads-default-w0" in key]


def test_a_deployment_of_two_colours_has_no_object_but_the_providers() -> None:
    recorded = record(workloads_alone({**REPLICAS, "update": {"kind": "blue_green", "step": 3}}))
    inputs = recorded.one(BLUE_GREEN).inputs
    assert recorded.of(DEPLOYMENT) == []
    assert recorded.of("kubernetes:core/v1:Service") == []
    assert inputs["deployment"]["metadata"]["name"] == "w0"
    assert inputs["service"]["metadata"]["name"] == "w0"
    assert (inputs["step"], inputs["switchAt"], inputs["deadlineSeconds"]) == (3, 2, 600)
    assert inputs["kubeconfig"]


def test_the_provider_takes_what_the_component_gives() -> None:
    inputs = record(workloads_alone({**REPLICAS, "update": {"kind": "blue_green"}})).one(BLUE_GREEN).inputs
    call = Call("urn", BLUE_GREEN, "n", Engine(), asyncio.Event())
    wired = from_struct(to_struct(inputs))  # as the engine passes them: whole numbers become ints again
    answer = asyncio.run(GpuformProvider(Engine()).handler(BLUE_GREEN).check(call, {}, wired))
    assert answer.failures == []


@pytest.mark.parametrize(
    ("replicas", "update", "expected"),
    [
        (2, {}, 1),
        (3, {}, 2),
        (5, {}, 3),
        (5, {"switch_at": 4}, 4),
        (5, {"deadline_seconds": 30}, 30),
        (5, {"deadline_seconds": None}, 600),
        (5, {"deadline_seconds": None, "start_minutes": 40}, 2400),
    ],
)
def test_settings_of_a_colour_change_reach_the_provider(
    replicas: int, update: dict[str, Any], expected: int
) -> None:
    start = {"start_minutes": update["start_minutes"]} if "start_minutes" in update else {}
    options = {key: value for key, value in update.items() if key not in start and value is not None}
    work = {**REPLICAS, **start, "replicas": replicas, "update": {"kind": "blue_green", **options}}
    inputs = record(workloads_alone(work)).one(BLUE_GREEN).inputs
    assert expected == inputs["deadlineSeconds" if "deadline_seconds" in update else "switchAt"]


def test_an_object_that_was_the_stacks_own_child_is_not_made_anew() -> None:
    env = parse(workloads_alone(*WORKLOADS))

    def program() -> None:
        Workloads("workloads", WorkloadsArgs(workloads=[arguments(env, work, "k") for work in env.workloads]))

    recorded = run(program)
    for kind in ("kubernetes:core/v1:Pod", DEPLOYMENT):
        parents = [alias.spec.parentUrn for alias in recorded.one(kind).request.aliases]
        assert any(urn.endswith("gpuform:platform:Workloads::workloads") for urn in parents), kind


def test_a_users_program_declares_workloads_one_by_one() -> None:
    env = parse({**workloads_alone(), "workloads": []})
    results: list[Any] = []

    def program() -> None:
        pod = PodWorkload(kind="pod", name="one", pool="t4", image="a:1")
        GpuPod("pod", arguments(env, pod))
        job = JobWorkload(kind="job", name="two", pool="t4", image="a:1", parallelism=2, wait_minutes=90)
        GpuJob("job", arguments(env, job))
        served = DeploymentWorkload.model_validate({"name": "three", **REPLICAS})
        deployment = GpuDeployment("served", arguments(env, served))
        pulumi.Output.all(deployment.asks, deployment.address).apply(results.extend)

    recorded = run(program)
    assert results == [{"nvidia.com/gpu": "1"}, "three.default.svc:80"]
    pod = recorded.one("kubernetes:core/v1:Pod").inputs["spec"]
    assert pod["nodeSelector"] == {"gpuform.io/pool": "t4"}
    assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert "annotations" not in recorded.one("kubernetes:batch/v1:Job").inputs["metadata"]
    assert not recorded.one("kubernetes:core/v1:Pod").request.aliases


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "InferenceService"])
def test_what_a_pod_asks_for_is_what_its_container_requests(kind: str) -> None:
    requests = {"nvidia.com/gpu": "1", "vpc.amazonaws.com/efa": "32"}
    container = {"name": "w", "resources": {"requests": {"cpu": "1", "hugepages-2Mi": "5Gi", **requests}}}
    pod = {"containers": [container]}
    specs = {
        "Pod": pod,
        "Deployment": {"template": {"spec": pod}},
        "InferenceService": {"predictor": {"model": container}},
    }
    results: list[Any] = []

    def program() -> None:
        group = {"Pod": "v1", "Deployment": "apps/v1"}.get(kind, "serving.kserve.io/v1beta1")
        metadata = {"name": "w", "namespace": "default"}
        manifest = {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": specs[kind]}
        COMPONENTS[kind]("w", WorkloadArgs(controller=manifest)).asks.apply(results.append)

    run(program)
    assert results == [requests]


def _claimed() -> tuple[Environment, DeploymentWorkload]:
    work = {**REPLICAS, "name": "w", "pool": "p0", "count": 1, "update": {"kind": "blue_green"}}
    return TABLE["claimed"], DeploymentWorkload.model_validate(work)


def test_a_claim_comes_before_the_pods_that_have_it() -> None:
    recorded = run(lambda: GpuDeployment("w", arguments(*_claimed(), "k")) and None)
    claim = recorded.one("kubernetes:resource.k8s.io/v1:ResourceClaimTemplate")
    assert claim.name == "w-1-gpu"
    assert recorded.resources.index(claim) < recorded.resources.index(recorded.one(BLUE_GREEN))


def test_two_colours_need_a_kubeconfig() -> None:
    with pytest.raises(ValueError, match="needs the kubeconfig of the cluster"):
        arguments(*_claimed())
