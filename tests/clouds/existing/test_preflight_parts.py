"""Prometheus, controllers and NodePools of others: what they must be like before an update uses them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuform.clouds.existing.preflight import controllers, prometheus
from gpuform.kubernetes.kinds import (
    CLUSTER_QUEUE,
    DEPLOYMENT,
    NODE_POOL,
    PROMETHEUS,
    SERVICE,
    STATEFUL_SET,
    Kind,
)
from gpuform.stack.preflight.check import Result
from infra.plan.monitoring import NODE_LABELS
from tests.clouds.existing.live import Json, daemons, env, live
from tests.clouds.findings import expect

pytestmark = pytest.mark.unit

THEIRS = {"prometheus": {"service": "p.metrics:9090", "labels": {"release": "stack"}}}
LABELLED, ALL_SPACES = {"matchLabels": {"release": "stack"}}, {}


def prometheus_of(rules: Any = LABELLED, monitors: Any = LABELLED, spaces: Any = ALL_SPACES) -> Json:
    spec = {"ruleSelector": rules, "serviceMonitorSelector": monitors}
    spec |= dict.fromkeys(("ruleNamespaceSelector", "serviceMonitorNamespaceSelector"), spaces)
    return {"metadata": {"name": "p", "namespace": "metrics"}, "spec": spec}


@pytest.mark.parametrize(
    ("found", "verdict", "fact"),
    [
        ([prometheus_of()], "PASS", "metrics/p selects"),
        ([prometheus_of(rules={})], "PASS", "metrics/p selects"),
        ([prometheus_of(rules={"matchExpressions": [{"key": "release", "operator": "Exists"}]})], "PASS", ""),
        ([prometheus_of(rules={"matchLabels": {"team": "a"}}), prometheus_of()], "PASS", "metrics/p"),
        ([prometheus_of(monitors={"matchLabels": {"team": "a"}})], "FAIL", "by serviceMonitorSelector"),
        ([prometheus_of(rules=None)], "FAIL", "selects by ruleSelector nothing"),
        ([prometheus_of(spaces=None)], "FAIL", "has no ruleNamespaceSelector"),
        ([prometheus_of(spaces={"matchLabels": {"a": "b"}})], "FAIL", "select namespace gpu-operator"),
        ([], "FAIL", "none of prometheus-operator is there"),
    ],
)  # fmt: skip
def test_prometheus_of_others_selects_what_the_stack_creates(
    found: list[Json], verdict: str, fact: str
) -> None:
    cluster = live(env(own={"monitoring": THEIRS}), {PROMETHEUS: found})
    expect(prometheus.judge_selection(cluster), verdict, fact, "")


BY_FILES = {"prometheus": {"service": "p.metrics:80", "config_namespace": "metrics"}}


@pytest.mark.parametrize(
    ("there", "mounted", "verdict", "fact"),
    [
        (True, ("metrics", "gpuform-prometheus"), "PASS", "metrics/p mounts ConfigMap gpuform-prometheus"),
        (True, ("other", "gpuform-prometheus"), "SKIP", "nothing in namespace metrics mounts ConfigMap"),
        (True, ("metrics", "other"), "SKIP", "nothing in namespace metrics mounts ConfigMap"),
        (False, ("metrics", "other"), "FAIL", "namespace metrics is not there"),
    ],
)
@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET])
def test_prometheus_without_an_operator_mounts_its_files(
    kind: Kind, there: bool, mounted: tuple[str, str], verdict: str, fact: str
) -> None:
    volumes = [{"name": "own", "emptyDir": {}}, {"name": "a", "configMap": {"name": mounted[1]}}]
    item = {
        "metadata": {"name": "p", "namespace": mounted[0]},
        "spec": {"template": {"spec": {"containers": [], "volumes": volumes}}},
    }
    cluster = live(env(own={"monitoring": BY_FILES}), {kind: [item]})
    cluster = replace(cluster, find=lambda kind, namespace, name: {} if there else None)
    files, *others = prometheus.checks(cluster.env, "kubectl")
    expect(files.judge(cluster), verdict, fact, "")
    assert not [check for check in others if PROMETHEUS.resource in check.command]


@pytest.mark.parametrize(
    ("name", "annotations", "verdict"),
    [
        ("kube-state-metrics", {"prometheus.io/scrape": "true"}, "FAIL"),
        ("kube-state-metrics", None, "PASS"),
        ("server", {"prometheus.io/scrape": "true"}, "PASS"),
    ],
)
def test_state_metrics_are_scraped_once(name: str, annotations: Json | None, verdict: str) -> None:
    metadata = {"name": "s", "namespace": "metrics", "labels": {"app.kubernetes.io/name": name}}
    item = {"metadata": {**metadata, "annotations": annotations}}
    cluster = live(env(own={"monitoring": BY_FILES}), {SERVICE: [item]})
    fact = "metrics/s is scraped by its annotation too" if verdict == "FAIL" else "by the stack's"
    expect(prometheus.judge_annotation(cluster), verdict, fact, "")


@pytest.mark.parametrize(
    ("keys", "verdict", "fact"),
    [
        (("username", "password"), "PASS", "metrics is in gpu-operator, gpuform-health"),
        (("token",), "SKIP", "metrics with username and password is not in gpuform-health, so queries"),
        ((), "SKIP", "is not in gpu-operator, gpuform-health, so queries"),
    ],
)
def test_secret_of_prometheus_is_wherever_it_is_asked_from(
    keys: tuple[str, ...], verdict: str, fact: str
) -> None:
    theirs = {"prometheus": {"url": "https://mimir.example", "secret": "metrics"}}
    own = {"monitoring": theirs, "health": {"mode": "observe"}}
    there = {"gpu-operator": ("username", "password"), "gpuform-health": keys}
    cluster = replace(
        live(env(own=own)),
        find=lambda kind, namespace, name: {"data": dict.fromkeys(there[namespace])} if keys else None,
    )
    check = next(prometheus.checks(cluster.env, "kubectl"))
    expect(check.judge(cluster), verdict, fact, "")


@pytest.mark.parametrize(
    ("arguments", "verdict", "fact"),
    [
        (["--metric-labels-allowlist=nodes=[*],pods=[app]"], "PASS", "exports the labels"),
        ([f"--metric-labels-allowlist=pods=[a],nodes=[{','.join(NODE_LABELS)}]"], "PASS", "exports"),
        (["--metric-labels-allowlist=pods=[gpuform.io/pool]"], "FAIL", "no label gpuform.io/pool"),
        (["--port=8080"], "FAIL", "which the rules need"),
    ],
)  # fmt: skip
def test_state_metrics_of_others_have_the_labels_of_nodes(
    arguments: list[str], verdict: str, fact: str
) -> None:
    image = "registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.17.0"
    item = daemons(image, None)
    item["spec"]["template"]["spec"]["containers"][0]["args"] = arguments
    cluster = live(env(own={"monitoring": THEIRS}), {DEPLOYMENT: [item]})
    expect(prometheus.judge_state_metrics(cluster), verdict, fact, "")


@pytest.mark.parametrize(
    ("name", "image", "verdict", "fact"),
    [
        ("cert-manager", "quay.io/jetstack/cert-manager-controller:v1.15.0", "PASS", "is 1.15"),
        ("cert-manager", "quay.io/jetstack/cert-manager-controller:v1.14.7", "FAIL", "needs 1.15"),
        ("cert-manager", "quay.io/jetstack/cert-manager-cainjector:v1.18.2", "FAIL", "is not there"),
        ("kserve", "kserve/kserve-controller:v0.16.0", "FAIL", "needs 0.17"),
        ("keda", "ghcr.io/kedacore/keda@sha256:ab", "SKIP", "its version is not in"),
    ],
)
def test_controllers_of_others_are_new_enough(name: str, image: str, verdict: str, fact: str) -> None:
    expect(controllers.judge(name, live(env(), {DEPLOYMENT: [daemons(image, None)]})), verdict, fact, "")


QUEUED = {
    "queues": {"teams": [{"name": "team", "namespaces": ["lab"], "quota": {"t4": 1}}]},
    "existing": ["kueue"],
}
PREFIXES = ["cpu", "memory", "ephemeral-storage", "hugepages-", "vpc.amazonaws.com/efa"]
JOB = {"name": "j", "namespace": "lab", "kind": "job", "pool": "t4", "queue": "team", "image": "a:1"}


def kueue(tag: str = "v0.16.1") -> Json:
    item = daemons(f"registry.k8s.io/kueue/kueue:{tag}", None)
    item["metadata"] |= {"name": "kueue-controller-manager", "namespace": "kueue-system"}
    return item


def judged_kueue(config: Json | None, *deployments: Json, queues: Any = ()) -> Result:
    own = {**QUEUED, "workloads": [JOB]}
    found = live(env(own=own), {DEPLOYMENT: deployments, CLUSTER_QUEUE: queues})
    text = {"data": {"controller_manager_config.yaml": json.dumps(config)}} if config is not None else None
    asked = replace(found, find=lambda kind, namespace, name: text if namespace == "kueue-system" else None)
    return controllers.judge("kueue", asked)


@pytest.mark.parametrize(
    ("changed", "verdict", "fact"),
    [
        ({}, "PASS", "kueue-system/kueue-controller-manager is 0.16"),
        ({"resources": {"excludeResourcePrefixes": [""]}}, "PASS", ""),
        ({"resources": {"excludeResourcePrefixes": ["cpu"]}}, "FAIL", "it counts memory, of which"),
        ({"resources": None}, "FAIL", "it counts cpu, of which"),
        ({"integrations": {"frameworks": ["pod"]}}, "FAIL", "it does not manage batch/job"),
        ({"managedJobsNamespaceSelector": {"matchLabels": {"a": "b"}}}, "FAIL", "leaves out namespace lab"),
        (
            {"managedJobsNamespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]}},
            "PASS", "",
        ),
        (None, "SKIP", "kueue-system/kueue-manager-config was not found"),
    ],
)  # fmt: skip
def test_kueue_of_others_admits_what_the_stack_queues(changed: Any, verdict: str, fact: str) -> None:
    config = {
        "resources": {"excludeResourcePrefixes": PREFIXES},
        "integrations": {"frameworks": ["batch/job"]},
    }
    expect(judged_kueue(config | changed if changed is not None else None, kueue()), verdict, fact, "")


@pytest.mark.parametrize(
    ("deployments", "verdict", "fact"),
    [
        ([], "FAIL", "is not there"),
        ([kueue("v0.14.2")], "FAIL", "is 0.14, and the stack needs 0.15"),
        ([kueue("main")], "SKIP", "its version is not in registry.k8s.io/kueue/kueue:main"),
    ],
)
def test_controller_of_others_is_there_and_new_enough(
    deployments: list[Json], verdict: str, fact: str
) -> None:
    expect(judged_kueue({}, *deployments), verdict, fact, "")


def test_queue_of_others_is_not_taken_over() -> None:
    taken = {"metadata": {"name": "team", "labels": {"gpuform.io/environment": "other"}}}
    expect(
        judged_kueue({}, kueue(), queues=[taken]), "FAIL", "ClusterQueue team is of others", "another name"
    )


@pytest.mark.parametrize(
    ("template", "verdict", "fact"),
    [
        ({"gpuform.io/pool": "t4"}, "PASS", "they give their nodes the labels"),
        ({"team": "a"}, "SKIP", "gives its nodes no label gpuform.io/pool: pods of pool t4 start none"),
        (None, "FAIL", "NodePool inference is not there"),
    ],
)
def test_node_pools_of_others_promise_the_labels_of_pools(template: Any, verdict: str, fact: str) -> None:
    declared = env(pool={"selector": {"karpenter.sh/nodepool": "inference"}})
    spec = {"template": {"metadata": {"labels": template}}}
    found = [{"metadata": {"name": "inference"}, "spec": spec}] if template is not None else []
    expect(controllers.judge_node_pools(live(declared, {NODE_POOL: found})), verdict, fact, "")
