"""Workloads with a model: KServe's InferenceService and runtime, what scales them, and the releases."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model import inference
from infra.model.kserve import CERT_MANAGER, KSERVE
from infra.plan import kserve, workloads
from infra.plan.rules.alerts import pods
from lab.rehearse import workloads as rehearsed
from tests.config.edits import changed
from tests.config.tables import GOOD, SERVED

pytestmark = pytest.mark.unit

FIXED = ({"at": "workloads/1/scale", "remove": True}, {"at": "workloads/1/replicas", "put": 3})
CLASS = "serving.kserve.io/autoscalerClass"


def made(*edits: dict[str, Any], of: dict[str, Any] = SERVED) -> dict[str, dict[str, Any]]:
    """The workload's objects by kind."""
    env = parse(changed(of, *edits))
    return {one["kind"]: one for one in workloads.objects(env, env.workloads[1])}


def predictor(*edits: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made(*edits)["InferenceService"]["spec"]["predictor"]
    return found


def test_pods_are_those_of_the_deployment_that_it_would_be_without_a_model() -> None:
    deployment = made(of=GOOD["scaling"])["Deployment"]["spec"]
    pod, (container,) = deployment["template"]["spec"], deployment["template"]["spec"]["containers"]
    found = predictor()
    assert {**found["model"], "name": "triton"}.items() >= container.items()
    assert found.items() >= {key: pod[key] for key in pod if key != "containers"}.items()
    assert found["labels"] == deployment["template"]["metadata"]["labels"]
    assert found["deploymentStrategy"] == deployment["strategy"]
    assert (found["model"]["storageUri"], found["serviceAccountName"]) == ("s3://models/resnet", "models")
    assert "name" not in found["model"], "KServe's webhook refuses one"


def test_triton_reads_the_model_and_listens_where_the_service_and_prometheus_ask() -> None:
    model = predictor({"at": "workloads/1/service/ready_path", "put": None})["model"]
    assert model["args"][:2] == ["tritonserver", "--model-repository=/mnt/models"]
    assert {"--http-port=8000", "--metrics-port=8002", "--allow-grpc=false"} == set(model["args"][2:])
    assert model["ports"][0]["containerPort"] == 8000, "KServe's own Service has the first port"
    assert model["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
    assert "args" not in predictor({"at": "workloads/1/command", "put": ["serve"]})["model"]
    query = {"at": "workloads/1/scale/query", "put": "vector(1)"}
    assert "--allow-metrics=false" in predictor(query)["model"]["args"]


def test_the_runtime_is_a_triton_that_supports_the_format() -> None:
    model, found = predictor()["model"], made()["ServingRuntime"]
    assert model["runtime"] == found["metadata"]["name"] == "triton-triton"
    assert model["modelFormat"]["name"] in [one["name"] for one in found["spec"]["supportedModelFormats"]]
    assert found["spec"]["containers"][0]["image"] == model["image"]


def test_keda_scales_what_kserve_makes_and_without_it_kserve_sets_the_number() -> None:
    found, fixed = made(), made(*FIXED)
    assert found["InferenceService"]["metadata"]["annotations"][CLASS] == "external"
    assert not {"minReplicas", "maxReplicas"} & predictor().keys()
    assert found["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == "triton-predictor"
    assert fixed["InferenceService"]["metadata"]["annotations"][CLASS] == "none"
    assert (predictor(*FIXED)["minReplicas"], predictor(*FIXED)["maxReplicas"]) == (3, 3)
    assert "ScaledObject" not in fixed


def test_an_update_waits_until_it_is_ready_but_not_for_its_turn_in_a_queue() -> None:
    """The provider compares generations, and KServe reports its Deployment's: a format must change that."""
    wait = "pulumi.com/waitFor"
    assert made()["InferenceService"]["metadata"]["annotations"][wait] == "condition=Ready"
    assert predictor()["annotations"]["gpuform.io/model-format"] == "onnx"
    team = {"name": "a", "namespaces": ["default"], "quota": {"t4": 6}}
    queues = {"at": "queues", "put": {"teams": [team]}}, {"at": "workloads/1/queue", "put": "a"}
    metadata = made(*queues)["InferenceService"]["metadata"]
    assert metadata["annotations"][wait] == "jsonpath={.metadata.uid}"
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "a"
    env = parse(SERVED)
    first = 10 + 21 + 31  # image, operands and model
    assert workloads.wait_minutes(env, env.workloads[1]) == (first, 6 * first)


def test_releases_come_only_with_a_model_and_cert_manager_unless_there_is_one() -> None:
    assert [one.name for one in kserve.releases(parse(SERVED))] == ["cert-manager", "kserve-crd", "kserve"]
    theirs = parse(changed(SERVED, {"at": "kserve", "put": {"cert_manager": "existing"}}))
    assert [one.name for one in kserve.releases(theirs)] == ["kserve-crd", "kserve"]
    spaces = [one["metadata"]["name"] for one in workloads.namespaces(theirs)]
    assert [name for name in spaces if name in (KSERVE, CERT_MANAGER)] == [KSERVE]
    assert kserve.releases(parse(GOOD["scaling"])) == ()
    at_most = inference.at_most(parse(SERVED))
    assert not at_most.served, "a rehearsal has Deployments"


def test_images_that_values_name_in_other_ways_have_mirrors_too() -> None:
    mirrors = {"at": "registries", "put": {"docker.io": "a.example/hub", "quay.io": "a.example/quay"}}
    controller = kserve.releases(parse(changed(SERVED, mirrors)))[2].values["kserve"]["controller"]
    assert controller["image"] == "a.example/hub/kserve/kserve-controller"
    assert controller["rbacProxyImage"] == "a.example/quay/brancz/kube-rbac-proxy:v0.18.0"


def test_alerts_and_panels_look_for_the_pods_of_kserves_deployment() -> None:
    assert 'pod=~"triton-predictor-[a-z0-9]+' in pods(parse(SERVED).workloads[1])
    assert 'pod=~"triton-[a-z0-9]+' in pods(parse(GOOD["scaling"]).workloads[1])


def test_the_number_of_pods_is_forced_on_no_inference_service() -> None:
    """KServe owns the number of its Deployment, and copies annotations to the pods."""
    assert "pulumi.com/patchForce" not in made(*FIXED)["InferenceService"]["metadata"]["annotations"]


def test_a_rehearsal_of_loads_needs_no_kserve() -> None:
    placed = changed(SERVED, {"at": "workloads/0/pool", "put": "t4"})
    env = rehearsed.environment(placed, "Pulumi.s.yaml", scaled=True)
    assert (env.served, env.scaled) == ((), True)
