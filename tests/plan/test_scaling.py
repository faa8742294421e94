"""Inference workloads as declared, with and without KServe: what measures and what scales them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.model.base.namespaces import CERT_MANAGER, KSERVE
from infra.model.placement import fit
from infra.plan import images, kserve, quotas, scaling, serving, workloads
from infra.plan.render import render
from infra.plan.rules.alerts import pods
from lab.rehearse import workloads as rehearsed
from tests.build.edits import changed
from tests.config.tables import GOOD, SERVED

pytestmark = pytest.mark.unit

SCALE = "workloads/1/scale"


def made(*edits: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The workload's objects by kind."""
    env = parse(changed(GOOD["scaling"], *edits))
    return {item["kind"]: item for item in workloads.objects(env, env.workloads[1])}


def trigger(*edits: dict[str, Any]) -> dict[str, Any]:
    (found,) = made(*edits)["ScaledObject"]["spec"]["triggers"]
    return found["metadata"]


def test_the_deployment_leaves_its_number_to_keda() -> None:
    found = made()
    assert list(found) == ["Service", "Deployment", "PodMonitor", "ScaledObject"]
    assert "replicas" not in found["Deployment"]["spec"]
    spec = found["ScaledObject"]["spec"]
    assert spec["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 6)


def test_without_scale_the_number_is_declared_and_nothing_scales() -> None:
    found = made({"at": SCALE, "remove": True}, {"at": "workloads/1/replicas", "put": 3})
    assert found["Deployment"]["spec"]["replicas"] == 3
    former = {"pulumi.com/patchForce": "true", "gpuform.io/replicas": "3"}
    assert found["Deployment"]["metadata"]["annotations"] == former, "a former autoscaler owns the number"
    assert list(found) == ["Service", "Deployment", "PodMonitor"]
    assert scaling.release(parse(changed(GOOD["scaling"], {"at": SCALE, "remove": True}))) is None


def test_without_monitoring_nothing_is_measured() -> None:
    found = made({"at": SCALE, "remove": True}, {"at": "monitoring", "remove": True})
    assert list(found) == ["Service", "Deployment"]


def test_requests_are_those_that_the_workloads_own_pods_answered() -> None:
    """The job of a PodMonitor's series is its namespace and name."""
    found = made()
    monitor, container = found["PodMonitor"], found["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    port = {item["name"]: item["containerPort"] for item in container["ports"]}
    assert (port[endpoint["port"]], endpoint["path"]) == (8002, "/metrics")
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("15s", "10s"), "of four scrapes the rate"
    pods = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pods.items()
    assert monitor["metadata"]["labels"]["release"] == "monitoring", "or Prometheus does not select it"
    where = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    assert trigger()["query"] == f'sum(rate(nv_inference_request_success{{job="{where}"}}[60s]))'
    slow = {"at": "monitoring", "put": {"interval": "30s"}}
    assert "[120s]" in trigger(slow)["query"], "four scrapes"


def test_an_empty_answer_changes_no_number() -> None:
    """KEDA's default takes it for no requests: a failed scrape would end all pods but the fewest."""
    assert trigger()["ignoreNullValues"] == "false"


@pytest.mark.parametrize(
    ("shown", "spec", "of_trigger"),
    [
        (
            {"secret": "metrics"},
            {"secretTargetRef": [
                {"parameter": "username", "name": "metrics", "key": "username"},
                {"parameter": "password", "name": "metrics", "key": "password"},
            ]},
            {"authModes": "basic"},
        ),
        (
            {"token_secret": "metrics"},
            {"secretTargetRef": [{"parameter": "bearerToken", "name": "metrics", "key": "token"}]},
            {"authModes": "bearer"},
        ),
        (
            {"sigv4": {"region": "eu-central-1"}},
            {"podIdentity": {"provider": "aws"}},
            {"awsRegion": "eu-central-1"},
        ),
    ],
)  # fmt: skip
def test_keda_shows_prometheus_of_others_who_it_is(
    shown: dict[str, Any], spec: dict[str, Any], of_trigger: dict[str, str]
) -> None:
    theirs = {"at": "monitoring", "put": {"prometheus": {"url": "https://mimir.example", **shown}}}
    found = made(theirs)
    assert list(found)[-2:] == ["TriggerAuthentication", "ScaledObject"]
    authentication, (source,) = found["TriggerAuthentication"], found["ScaledObject"]["spec"]["triggers"]
    assert authentication["spec"] == spec
    assert authentication["metadata"]["namespace"] == found["ScaledObject"]["metadata"]["namespace"]
    assert source["authenticationRef"] == {"name": authentication["metadata"]["name"]}
    assert source["metadata"].items() >= {"serverAddress": "https://mimir.example", **of_trigger}.items()
    plain = {"at": "monitoring/prometheus", "put": {"url": "https://mimir.example"}}
    assert "TriggerAuthentication" not in made(theirs, plain)


def test_pods_on_the_services_own_port_are_measured_there() -> None:
    """As vLLM does; a container's port has one name."""
    found = made({"at": "workloads/1/metrics", "put": {"port": 8000}})
    (port,) = found["Deployment"]["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert found["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["port"] == port["name"] == "serving"


def test_a_query_of_ones_own_needs_no_metrics_of_the_pods() -> None:
    query = {"at": f"{SCALE}/query", "put": "sum(rate(requests[1m])) or vector(0)"}
    assert "PodMonitor" not in made(query)
    assert trigger(query)["query"] == "sum(rate(requests[1m])) or vector(0)"
    assert "PodMonitor" in made(query, {"at": "workloads/1/metrics", "put": {}})


def test_the_last_pod_goes_after_the_cooldown_as_the_others_do() -> None:
    spec = made({"at": f"{SCALE}/cooldown_seconds", "put": 60})["ScaledObject"]["spec"]
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert spec["cooldownPeriod"] == down["stabilizationWindowSeconds"] == 60


def test_an_update_waits_for_no_endpoints_where_there_may_be_no_pod() -> None:
    skip = "pulumi.com/skipAwait"
    assert skip not in made()["Service"]["metadata"].get("annotations", {})
    none = {"at": f"{SCALE}/query", "put": "vector(1)"}, {"at": f"{SCALE}/min", "put": 0}
    assert made(*none)["Service"]["metadata"]["annotations"][skip] == "true"


def test_pods_are_rather_near_the_data_than_pending() -> None:
    affinity = made()["Deployment"]["spec"]["template"]["spec"]["affinity"]
    assert list(affinity) == ["podAffinity"]
    (rule,) = affinity["podAffinity"].items()
    assert rule[0] == "preferredDuringSchedulingIgnoredDuringExecution"
    keys = [item["podAffinityTerm"]["topologyKey"] for item in rule[1]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    pools = {"at": "workloads/1/gpu", "put": {"memory_gib": 8}}, {"at": "workloads/1/pool", "put": None}
    both = made(*pools)["Deployment"]["spec"]["template"]["spec"]["affinity"]
    assert set(both) == {"nodeAffinity", "podAffinity"}


def test_checks_and_times_of_updates_count_the_most_pods() -> None:
    env = parse(GOOD["scaling"])
    work = env.workloads[1]
    assert work.pods == 6
    first, update = workloads.wait_minutes(env, work)
    assert update == first * serving.update_steps(work, workloads.controller(env, work)["spec"]) == first * 6  # type: ignore[arg-type]


def test_a_rehearsal_places_the_most_pods() -> None:
    env = fit.with_max_pods(parse(GOOD["scaling"]))
    kinds = [item["kind"] for item in workloads.manifests(env)]
    assert kinds == ["Deployment", "Service", "Deployment"]
    assert workloads.manifests(env)[-1]["spec"]["replicas"] == 6


def test_keda_is_the_published_chart_and_its_images_have_mirrors() -> None:
    files = render(parse(GOOD["scaling"]))
    (chart,) = yaml.safe_load_all(files["scaling.yaml"])
    assert (chart["repository"], chart["chart"]) == ("https://kedacore.github.io/charts", "keda")
    assert set(chart["values"]) == {"tolerations"}
    (space,) = [
        item
        for item in yaml.safe_load_all(files["namespaces.yaml"])
        if item["metadata"]["name"] == "gpuform-keda"
    ]
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    mirror = {"at": "registries", "put": {"ghcr.io": "mirror.example/ghcr"}}
    env = parse(changed(GOOD["scaling"], mirror))
    pulled = [
        entry.pulled_as
        for entry in images.list_artifacts(env)
        if "kedacore" in entry.name and entry.kind == "image"
    ]
    names = ("keda-admission-webhooks", "keda-metrics-apiserver", "keda")
    assert sorted(pulled) == [f"mirror.example/ghcr/kedacore/{name}:{chart['version']}" for name in names]
    release = scaling.release(env)
    assert release is not None
    assert release.values["image"]["keda"] == {
        "registry": "mirror.example",
        "repository": "ghcr/kedacore/keda",
    }


FIXED = ({"at": "workloads/1/scale", "remove": True}, {"at": "workloads/1/replicas", "put": 3})
CLASS = "serving.kserve.io/autoscalerClass"


def of_kserve(*edits: dict[str, Any], of: dict[str, Any] = SERVED) -> dict[str, dict[str, Any]]:
    """The workload's objects by kind."""
    env = parse(changed(of, *edits))
    return {item["kind"]: item for item in workloads.objects(env, env.workloads[1])}


def predictor(*edits: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = of_kserve(*edits)["InferenceService"]["spec"]["predictor"]
    return found


def test_pods_are_those_of_the_deployment_that_it_would_be_without_a_model() -> None:
    deployment = of_kserve(of=GOOD["scaling"])["Deployment"]["spec"]
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
    model, found = predictor()["model"], of_kserve()["ServingRuntime"]
    assert model["runtime"] == found["metadata"]["name"] == "triton-triton"
    assert model["modelFormat"]["name"] in [item["name"] for item in found["spec"]["supportedModelFormats"]]
    assert found["spec"]["containers"][0]["image"] == model["image"]


def test_keda_scales_what_kserve_makes_and_without_it_kserve_sets_the_number() -> None:
    found, fixed = of_kserve(), of_kserve(*FIXED)
    assert found["InferenceService"]["metadata"]["annotations"][CLASS] == "external"
    assert not {"minReplicas", "maxReplicas"} & predictor().keys()
    assert found["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == "triton-predictor"
    assert fixed["InferenceService"]["metadata"]["annotations"][CLASS] == "none"
    assert (predictor(*FIXED)["minReplicas"], predictor(*FIXED)["maxReplicas"]) == (3, 3)
    assert "ScaledObject" not in fixed


def test_an_update_waits_until_it_is_ready_but_not_for_its_turn_in_a_queue() -> None:
    """The provider compares generations, and KServe reports its Deployment's: a format must change that."""
    wait = "pulumi.com/waitFor"
    assert of_kserve()["InferenceService"]["metadata"]["annotations"][wait] == "condition=Ready"
    assert predictor()["annotations"]["gpuform.io/model-format"] == "onnx"
    team = {"name": "a", "namespaces": ["default"], "quota": {"t4": 6}}
    queues = {"at": "queues", "put": {"teams": [team]}}, {"at": "workloads/1/queue", "put": "a"}
    metadata = of_kserve(*queues)["InferenceService"]["metadata"]
    assert metadata["annotations"][wait] == "jsonpath={.metadata.uid}"
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "a"
    env = parse(SERVED)
    first = 10 + 21 + 31  # image, operands and model
    assert workloads.wait_minutes(env, env.workloads[1]) == (first, 6 * first)


def test_releases_come_only_with_a_model_and_cert_manager_unless_there_is_one() -> None:
    assert [item.name for item in kserve.releases(parse(SERVED))] == ["cert-manager", "kserve-crd", "kserve"]
    theirs = parse(changed(SERVED, {"at": "existing", "put": ["cert-manager"]}))
    assert [entry.name for entry in kserve.releases(theirs)] == ["kserve-crd", "kserve"]
    spaces = [one["metadata"]["name"] for one in quotas.namespaces(theirs)]
    assert [name for name in spaces if name in (KSERVE, CERT_MANAGER)] == [KSERVE]
    assert kserve.releases(parse(GOOD["scaling"])) == ()
    at_most = fit.with_max_pods(parse(SERVED))
    assert not at_most.served_workloads, "a rehearsal has Deployments"


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
    assert "pulumi.com/patchForce" not in of_kserve(*FIXED)["InferenceService"]["metadata"]["annotations"]


def test_a_rehearsal_of_loads_needs_no_kserve() -> None:
    placed = changed(SERVED, {"at": "workloads/0/pool", "put": "t4"})
    env = rehearsed.environment(placed, "Pulumi.s.yaml", scaled=True)
    assert (env.served_workloads, env.has_scaling) == ((), True)
