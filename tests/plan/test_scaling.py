"""Inference workloads as declared: their Deployment, what measures and what scales it, and KEDA's release."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.model import inference
from infra.plan import images, scaling, serving, workloads
from infra.plan.render import render
from tests.config.edits import changed
from tests.config.tables import GOOD

pytestmark = pytest.mark.unit

SCALE = "workloads/1/scale"


def made(*edits: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The workload's objects by kind."""
    env = parse(changed(GOOD["scaling"], *edits))
    return {one["kind"]: one for one in workloads.objects(env, env.workloads[1])}


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
    force = {"pulumi.com/patchForce": "true"}
    assert found["Deployment"]["metadata"]["annotations"] == force, "a former autoscaler owns the number"
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
    port = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert (port[endpoint["port"]], endpoint["path"]) == (8002, "/metrics")
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
    keys = [one["podAffinityTerm"]["topologyKey"] for one in rule[1]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    pools = {"at": "workloads/1/gpu", "put": {"memory_gib": 8}}, {"at": "workloads/1/pool", "put": None}
    both = made(*pools)["Deployment"]["spec"]["template"]["spec"]["affinity"]
    assert set(both) == {"nodeAffinity", "podAffinity"}


def test_checks_and_times_of_updates_count_the_most_pods() -> None:
    env = parse(GOOD["scaling"])
    work = env.workloads[1]
    assert work.pods == 6
    first, update = workloads.wait_minutes(env, work)
    assert update == first * serving.steps(work, workloads.controller(env, work)["spec"]) == first * 6  # type: ignore[arg-type]


def test_a_rehearsal_places_the_most_pods() -> None:
    env = inference.at_most(parse(GOOD["scaling"]))
    kinds = [one["kind"] for one in workloads.manifests(env)]
    assert kinds == ["Deployment", "Service", "Deployment"]
    assert workloads.manifests(env)[-1]["spec"]["replicas"] == 6


def test_keda_is_the_published_chart_and_its_images_have_mirrors() -> None:
    files = render(parse(GOOD["scaling"]))
    (chart,) = yaml.safe_load_all(files["scaling.yaml"])
    assert (chart["repository"], chart["chart"]) == ("https://kedacore.github.io/charts", "keda")
    assert set(chart["values"]) == {"tolerations"}
    (space,) = [
        one
        for one in yaml.safe_load_all(files["namespaces.yaml"])
        if one["metadata"]["name"] == "gpuform-keda"
    ]
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    mirror = {"at": "registries", "put": {"ghcr.io": "mirror.example/ghcr"}}
    env = parse(changed(GOOD["scaling"], mirror))
    pulled = [one.pulled_as for one in images.pulled(env) if "kedacore" in one.name and one.kind == "image"]
    names = ("keda-admission-webhooks", "keda-metrics-apiserver", "keda")
    assert sorted(pulled) == [f"mirror.example/ghcr/kedacore/{name}:{chart['version']}" for name in names]
    release = scaling.release(env)
    assert release is not None
    assert release.values["image"]["keda"] == {
        "registry": "mirror.example",
        "repository": "ghcr/kedacore/keda",
    }
