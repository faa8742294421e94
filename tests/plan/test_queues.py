"""Queues as declared: Kueue's values, flavors of every kind of sharing, and the pods that have a queue."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.model.environment import Environment
from infra.model.platform.monitoring import Monitoring
from infra.plan import images, monitoring, queues, quotas, workloads
from tests.build import aws_environments
from tests.build.edits import changed
from tests.build.environments import on
from tests.config.tables import GOOD

pytestmark = pytest.mark.unit

T4, A100, FOUR = {"machine": "g2.5xlarge"}, {"machine": "g4.p1.40g"}, {"machine": "g4.p4.40g"}
SLICES = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
SHARES = {"kind": "time_slicing", "replicas": 4}
SEVEN = {"kind": "mig", "layout": {"1g.5gb": 7}}
KINDS: dict[str, tuple[dict[str, Any], Any, dict[str, str]]] = {
    "whole": (FOUR, 3, {"nvidia.com/gpu": "3"}),
    "shares": ({**T4, "sharing": SHARES}, 3, {"nvidia.com/gpu.shared": "3"}),
    "not renamed": ({**T4, "sharing": {**SHARES, "rename": False}}, 3, {"nvidia.com/gpu": "3"}),
    "mps": ({**T4, "sharing": {"kind": "mps", "replicas": 4}}, 3, {"nvidia.com/gpu": "3"}),
    "slices": (
        {**A100, "sharing": SLICES},
        {"3g.20gb": 1},
        {"nvidia.com/mig-2g.10gb": "0", "nvidia.com/mig-3g.20gb": "1"},
    ),
    "slices of one kind": ({**A100, "sharing": {**SEVEN, "strategy": "single"}}, 5, {"nvidia.com/gpu": "5"}),
    "shared slices": (
        {**A100, "sharing": {**SEVEN, "share": {"replicas": 2}}},
        {"1g.5gb": 9},
        {"nvidia.com/mig-1g.5gb.shared": "9"},
    ),
    "slices beside whole GPUs": (
        {**FOUR, "sharing": {**SEVEN, "devices": [0, 1]}},
        {"1g.5gb": 14, "gpu": 2},
        {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.5gb": "14"},
    ),
    "claimed GPUs": ({**A100, "sharing": {"kind": "dra"}}, 1, {"gpu.nvidia.com": "1"}),
    "claimed slices": ({**A100, "sharing": {**SEVEN, "kind": "dra"}}, 7, {"mig.nvidia.com": "7"}),
}
"""Pool, a quota of it, and what Kueue must count."""


def environment(*given: dict[str, Any], quota: dict[str, Any], **more: Any) -> Environment:
    team = {"name": "team", "namespaces": ["team"], "quota": quota}
    return on("embedded", *given, queues={"teams": [team]}, **more)


def of_kind(env: Environment, kind: str) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item["spec"] for item in queues.manifests(env) if item["kind"] == kind}


def nominal_quotas(spec: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {
        flavor["name"]: {item["name"]: item["nominalQuota"] for item in flavor["resources"]}
        for group in spec["resourceGroups"]
        for flavor in group["flavors"]
    }


def configured(env: Environment) -> dict[str, Any]:
    release = queues.release(env)
    assert release is not None
    found: dict[str, Any] = yaml.safe_load(release.values["managerConfig"]["controllerManagerConfigYaml"])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_sharing_has_its_flavor(kind: str) -> None:
    pool, quota, counted = KINDS[kind]
    work = {"name": "w", "namespace": "team", "kind": "job", "pool": "p0", "queue": "team", "image": "a:1"}
    if isinstance(quota, dict):
        work["slice"] = next(iter(quota))
    env = environment(pool, quota={"p0": quota}, workloads=[work])
    assert nominal_quotas(of_kind(env, "ClusterQueue")["team"]) == {"p0": counted}
    (flavor,) = of_kind(env, "ResourceFlavor").values()
    assert flavor["nodeLabels"] == {"gpuform.io/pool": "p0"}
    tolerated = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    assert flavor["tolerations"] == [tolerated]
    job = workloads.objects(env, env.workloads[0])[-1]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    asked = job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    classes = [item["name"] for item in configured(env)["resources"].get("deviceClassMappings", ())]
    assert classes == [name for name in counted if not name.startswith("nvidia.com/")]
    assert set(asked) - {"memory"} <= set(counted), "a pod requests only what the queue counts"


def test_pools_with_a_common_resource_are_one_group_and_the_others_have_their_own() -> None:
    partly = {**FOUR, "sharing": {**SEVEN, "devices": [0]}}
    shared = KINDS["shares"][0]
    quota = {"p2": 2, "p1": {"1g.5gb": 7, "gpu": 3}, "p0": 4}
    env = environment(FOUR, partly, shared, quota=quota)
    spec = of_kind(env, "ClusterQueue")["team"]
    groups = [
        (item["coveredResources"], [flavor["name"] for flavor in item["flavors"]])
        for item in spec["resourceGroups"]
    ]
    assert groups == [
        (["nvidia.com/gpu.shared"], ["p2"]),
        (["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"], ["p1", "p0"]),
    ], "in the order of the quota, which is the order in which Kueue tries them"
    assert nominal_quotas(spec)["p0"] == {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.5gb": "0"}
    for group in spec["resourceGroups"]:
        for flavor in group["flavors"]:
            assert [entry["name"] for entry in flavor["resources"]] == group["coveredResources"]


def test_limits_order_preemption_and_weight_are_kueues() -> None:
    env = parse(GOOD["queues"])
    science, arts = (of_kind(env, "ClusterQueue")[name] for name in ("science", "arts"))
    assert (science["cohortName"], science["queueingStrategy"]) == ("physics", "StrictFIFO")
    assert science["preemption"] == {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    assert science["fairSharing"] == {"weight": "2"}
    shares, slices = (group["flavors"][0]["resources"] for group in science["resourceGroups"])
    assert shares == [
        {"name": "nvidia.com/gpu.shared", "nominalQuota": "4", "borrowingLimit": "2", "lendingLimit": "1"}
    ]
    assert slices == [
        {"name": "nvidia.com/mig-2g.10gb", "nominalQuota": "0", "borrowingLimit": "0"},
        {"name": "nvidia.com/mig-3g.20gb", "nominalQuota": "1"},
    ], "what the quota does not name is not borrowed either"
    assert arts["queueingStrategy"] == "BestEffortFIFO"
    assert of_kind(env, "Cohort") == {"lab": {}, "physics": {"parentName": "lab"}}
    places = [
        (item["metadata"]["namespace"], item["metadata"]["name"], item["spec"])
        for item in queues.manifests(env)
        if item["kind"] == "LocalQueue"
    ]
    assert places[:2] == [
        (space, "science", {"clusterQueue": "science"}) for space in ("science", "science-ci")
    ]
    assert set(of_kind(env, "ResourceFlavor")) == {"t4", "mig", "whole"}


def test_kueue_acts_in_namespaces_of_teams_alone_and_counts_gpus_alone() -> None:
    env = parse(GOOD["queues"])
    config, spaces = configured(env), ["alone", "arts", "science", "science-ci"]
    here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": spaces}
    assert config["managedJobsNamespaceSelector"] == {"matchExpressions": [here]}
    assert "manageJobsWithoutQueueName" not in config
    others = ["cpu", "memory", "ephemeral-storage", "hugepages-", "vpc.amazonaws.com/efa"]
    assert config["resources"] == {"excludeResourcePrefixes": others}
    assert config["fairSharing"] == {
        "preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
    }
    plain = parse(changed(GOOD["queues"], {"at": "queues/fair_sharing", "put": False},
                          {"at": "queues/teams/0/weight", "remove": True}))  # fmt: skip
    assert "fairSharing" not in configured(plain)
    made = {item["metadata"]["name"]: item["metadata"]["labels"] for item in quotas.namespaces(env)}
    for space in (*spaces, "kueue-system"):
        assert made[space]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_admitted_pods_have_the_time_that_a_new_node_takes() -> None:
    """Kueue stops what is not ready in 30 minutes by default: an elastic node may then lack its driver."""
    team = {"name": "team", "namespaces": ["team"], "quota": {"p0": 1}}
    elastic = aws_environments.aws(aws_environments.SLICED).resolved() | {"queues": {"teams": [team]}}
    assert configured(parse(elastic))["waitForPodsReady"] == {"timeout": "77m"}
    assert configured(parse(GOOD["queues"]))["waitForPodsReady"] == {"timeout": "62m"}
    slow = {"name": "w", "kind": "pod", "namespace": "arts", "pool": "t4", "queue": "arts", "image": "a:1"}
    longer = changed(GOOD["queues"], {"at": "workloads/0", "put": {**slow, "start_minutes": 90}})
    assert configured(parse(longer))["waitForPodsReady"] == {"timeout": "90m"}


def test_kueue_runs_on_system_nodes_and_on_gpu_nodes_only_if_there_are_no_others() -> None:
    """Without a pod of it, no pod can be created in the namespaces of teams."""
    team = {"name": "team", "namespaces": ["team"], "quota": {"p0": 1}}
    aws = parse(aws_environments.aws(aws_environments.SLICED).resolved() | {"queues": {"teams": [team]}})
    keys = [tolerated(env) for env in (aws, environment(FOUR, quota={"p0": 1}), parse(GOOD["queues"]))]
    assert ["CriticalAddonsOnly" in found for found in keys] == [True, False, False]
    assert ["nvidia.com/gpu" in found for found in keys] == [False, True, False]


def tolerated(env: Environment) -> list[str]:
    release = queues.release(env)
    assert release is not None
    return [item["key"] for item in release.values["controllerManager"]["tolerations"]]


def workload(kind: str, **more: Any) -> dict[str, Any]:
    own = {"name": "w", "namespace": "arts", "kind": kind, "pool": "t4", "queue": "arts", "image": "a:1"}
    return {**own, **more}


def objects_of(one: dict[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
    env = parse({**changed(GOOD["queues"], {"at": "workloads/0", "put": one}), **more})
    return {found["kind"]: found for found in workloads.objects(env, env.workloads[0])}


QUEUED = {"kueue.x-k8s.io/queue-name": "arts"}
COLOURS = {"replicas": 2, "service": {"port": 80}, "update": {"kind": "blue_green"}}
CREATED = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}


def test_an_update_does_not_wait_for_the_turn_of_pods() -> None:
    pod = objects_of(workload("pod"))["Pod"]["metadata"]
    assert pod["annotations"] == CREATED
    assert pod["labels"].items() >= QUEUED.items()
    found = objects_of(workload("deployment", service={"port": 80}))
    assert found["Deployment"]["metadata"]["annotations"] == CREATED
    assert found["Service"]["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    job = objects_of(workload("job"))["Job"]
    assert job["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert "annotations" not in objects_of(workload("job", wait_minutes=60))["Job"]["metadata"]
    alone = workload("deployment", service={"port": 80})
    del alone["queue"]
    assert all("annotations" not in item["metadata"] for item in objects_of(alone).values())


@pytest.mark.parametrize("more", [{}, COLOURS], ids=["one", "two colours"])
def test_pods_of_a_deployment_have_the_queue_and_those_of_a_job_do_not(more: dict[str, Any]) -> None:
    """Kueue admits each pod of a Deployment, and a Job as a whole."""
    deployment = objects_of(workload("deployment", **more))["Deployment"]
    assert deployment["spec"]["template"]["metadata"]["labels"].items() >= QUEUED.items()
    assert not QUEUED.items() & deployment["spec"]["selector"]["matchLabels"].items()
    if more:
        assert deployment["metadata"]["labels"].items() >= QUEUED.items()
        assert "pulumi.com/waitFor" not in deployment["metadata"]["annotations"], "the provider waits for it"
    job = objects_of(workload("job"))["Job"]
    assert job["metadata"]["labels"].items() >= QUEUED.items()
    assert not QUEUED.items() & job["spec"]["template"]["metadata"]["labels"].items()


def test_an_update_ends_old_pods_first_because_they_have_the_quota() -> None:
    env = aws_environments.aws(aws_environments.SLICED).resolved()
    team = {"name": "arts", "namespaces": ["arts"], "quota": {"p0": 4}}
    one = {**workload("deployment"), "pool": "p0"}
    queued = parse({**env, "queues": {"teams": [team]}, "workloads": [one]})
    free = parse({**env, "workloads": [{key: one[key] for key in one if key != "queue"}]})
    strategies = [
        workloads.objects(each, each.workloads[0])[-1]["spec"].get("strategy") for each in (queued, free)
    ]
    assert strategies == [
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        None,
    ]


def test_a_product_in_two_pools_runs_where_the_queue_has_quota() -> None:
    """Kueue matches labels of flavors, which have no product: it could choose a pool of another one."""
    one = {"name": "w", "namespace": "team", "kind": "pod", "gpu_product": "Tesla-T4", "image": "a:1"}
    env = environment(T4, T4, FOUR, quota={"p2": 1, "p0": 1}, workloads=[{**one, "queue": "team"}])
    spec = workloads.objects(env, env.workloads[0])[0]["spec"]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "Tesla-T4"}
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {
        "matchExpressions": [{"key": "gpuform.io/pool", "operator": "In", "values": ["p0", "p1"]}]
    }
    free = environment(T4, T4, quota={"p0": 1}, workloads=[one])
    assert "affinity" not in workloads.objects(free, free.workloads[0])[0]["spec"]


def test_who_packs_and_which_priority_stay_as_without_a_queue() -> None:
    more = {"scheduling": {"packer": True}, "priorities": {"high": 100}}
    spec = objects_of(workload("job", priority="high"), **more)["Job"]["spec"]["template"]["spec"]
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("gpuform-packer", "high")


def test_chart_and_image_come_from_mirrors_and_are_listed() -> None:
    mirror = {"registry.k8s.io": "r.example/k8s"}
    env = parse({**GOOD["queues"], "workloads": [], "registries": mirror})
    release = queues.release(env)
    assert release is not None
    assert release.chart == "oci://r.example/k8s/kueue/charts/kueue"
    assert (
        release.values["controllerManager"]["manager"]["image"]["repository"] == "r.example/k8s/kueue/kueue"
    )
    listed = {item.name: item.pulled_as for item in images.list_artifacts(env)}
    assert listed["registry.k8s.io/kueue/kueue:v0.19.2"] == "r.example/k8s/kueue/kueue:v0.19.2"
    assert "oci://registry.k8s.io/kueue/charts/kueue:0.19.2" in listed


class TestKueueOfOthers:
    def env(self, **more: Any) -> Environment:
        queued = {"queues": {"teams": [{"name": "one", "namespaces": ["one"], "quota": {"t4": 4}}]}}
        pool = {"name": "t4", **T4, "selector": {"a": "b"}}
        return on("existing", pool, **queued, **more)

    def test_its_objects_are_the_same_and_nothing_is_installed(self) -> None:
        own, theirs = self.env(), self.env(existing=["kueue"])
        assert queues.manifests(theirs) == queues.manifests(own)
        assert queues.release(own) is not None
        assert queues.release(theirs) is None
        made = [{item["metadata"]["name"] for item in quotas.namespaces(env)} for env in (own, theirs)]
        assert made[0] - made[1] == {"kueue-system"}
        assert not [entry for entry in images.list_artifacts(theirs) if "kueue" in entry.name]

    def test_own_kueue_is_scraped_by_a_prometheus_of_others(self) -> None:
        monitored = {
            "prometheus": {"service": "p.metrics:9090", "labels": {"release": "stack"}},
            "interval": "5s",
        }
        (monitor,) = monitoring.monitors(self.env(monitoring=monitored))
        values = monitoring.values(self.env(monitoring={}), Monitoring())
        (own,) = values["prometheus"]["additionalServiceMonitors"]
        (endpoint,) = own["endpoints"]
        times = {"interval": "5s", "scrapeTimeout": "5s"}
        same = {key: own[key] for key in ("namespaceSelector", "selector")}
        assert monitor["spec"] == {**same, "endpoints": [{**times, **endpoint}]}
        assert monitor["metadata"]["labels"]["release"] == "stack"
