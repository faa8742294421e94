"""An existing cluster before an update: parts and limits that are there already, and the way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.clouds.existing.preflight import checks, limits, nodes
from gpuform.clouds.existing.preflight import cluster as existing
from gpuform.engine.files import EngineFiles
from gpuform.engine.pending import RELEASE
from gpuform.kubernetes.kinds import (
    CLUSTER_POLICY,
    DAEMON_SET,
    LIMIT_RANGE,
    NODE,
    RESOURCE_QUOTA,
)
from gpuform.stack.preflight.check import Result
from infra.config import load
from infra.model.environment import Environment
from tests.build.aws_stacks import ROOT
from tests.build.environments import declared
from tests.clouds.existing.live import ALL, NVIDIAS, OTHER, OWN, Json, daemons, env, live, node, policy
from tests.clouds.findings import expect

pytestmark = pytest.mark.unit

NFD_IMAGE = "registry.k8s.io/nfd/node-feature-discovery:v0.18.3@sha256:0a"
PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"


def judge(env: Environment, has_release: bool | None, check: Any, *objects: Json) -> Result:
    kinds: dict[Any, list[Json]] = {CLUSTER_POLICY: [], DAEMON_SET: [], NODE: []}
    for item in objects:
        kind = NODE if "spec" not in item else DAEMON_SET if "template" in item["spec"] else CLUSTER_POLICY
        kinds[kind].append(item)
    found: Result = check(live(env, kinds, has_release))
    return found


@pytest.mark.parametrize(
    ("mode", "releases", "has_release", "verdict", "fact", "fix"),
    [
        ("operator", [], False, "PASS", "none is there", ""),
        ("operator", [OWN], True, "PASS", "the stack's own", ""),
        ("operator", [OWN], None, "SKIP", "the stack's state is elsewhere", "uninstall it first"),
        ("operator", [OWN], False, "FAIL", "of Helm release gpu-operator/gpu-operator: Helm refuses a second",
         "uninstall that one"),
        ("operator", [OTHER], True, "FAIL", "of Helm release gpu-operator/nvidia-gpu-operator", "existing"),
        ("operator", [None], None, "FAIL", "cluster-policy is there, not by Helm", "mode: existing"),
        ("operator", [OWN, OTHER], True, "FAIL", "nvidia-gpu-operator", "existing"),
        ("device_plugin", [OTHER], False, "FAIL", "two device plugins would offer the same GPUs", "existing"),
        ("existing", [OWN], True, "FAIL", "", "use gpu_operator.mode: operator, or install one first"),
    ],
)  # fmt: skip
def test_foreign_operator_is_refused(
    mode: str, releases: list[Any], has_release: bool | None, verdict: str, fact: str, fix: str
) -> None:
    expect(
        judge(env(mode=mode), has_release, existing.judge_operator, *map(policy, releases)),
        verdict,
        fact,
        fix,
    )


TEAM = {"key": "team", "value": "a", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("declared", "tolerations", "verdict", "fact"),
    [
        ({}, [NVIDIAS], "PASS", "and tolerates the taints of the nodes"),
        ({}, [{**NVIDIAS, "operator": "Equal", "value": "present"}], "FAIL", "nvidia.com/gpu:NoSchedule"),
        ({"gpu_taint": "gpu"}, [NVIDIAS], "FAIL", "there/daemons does not tolerate gpu:NoSchedule"),
        ({"pool": {"taints": [TEAM]}}, [ALL], "FAIL", "there/daemons does not tolerate team:NoExecute"),
        ({"pool": {"taints": [TEAM]}}, [ALL, TEAM], "PASS", "and tolerates"),
        ({"pool": {"taints": [TEAM]}}, [{"operator": "Exists"}], "PASS", "and tolerates"),
    ],
)
def test_the_clusters_own_operator_must_reach_the_nodes(
    declared: Json, tolerations: list[Json], verdict: str, fact: str
) -> None:
    plugin = daemons(PLUGIN_IMAGE, None, *tolerations, owned=True)
    found = judge(env(mode="existing", **declared), None, existing.judge_operator, policy(OTHER), plugin)
    expect(found, verdict, fact)


def test_another_device_plugin_is_found_by_its_image() -> None:
    other = daemons("registry.example/k8s-device-plugin@sha256:0a", None, ALL)
    found = judge(env(), True, existing.judge_device_plugin, daemons(PLUGIN_IMAGE, OWN), other)
    expect(found, "FAIL", "there/daemons is there, not by Helm: two would offer the same GPUs")
    operators = daemons(PLUGIN_IMAGE, None, owned=True)
    assert judge(env(), False, existing.judge_device_plugin, operators).verdict == "PASS"
    found = judge(env(mode="existing"), True, existing.judge_operator, other)
    expect(found, "PASS", "there/daemons is there, not by Helm, and tolerates the taints of the nodes")


GKE, AUTO = {"cloud.google.com/gke-accelerator": "nvidia-l4"}, {"eks.amazonaws.com/compute-type": "auto"}
GKE_OFF = {**GKE, "gke-no-default-nvidia-gpu-device-plugin": "true"}
AKS = {"kubernetes.azure.com/dcgm-exporter": "enabled"}
GKES = daemons("gke.gcr.io/nvidia-gpu-device-plugin@sha256:0a", None, ALL)
ON_GKE, NOT_GKES = node("n-1", labels=GKE), node("n-2", labels=GKE_OFF)
ON_EKS, ON_AKS = node(labels=AUTO), node(labels=AKS)


@pytest.mark.parametrize(
    ("mode", "objects", "verdict", "fact", "fix"),
    [
        ("operator", [GKES, ON_GKE], "FAIL", "that of GKE offers the GPUs of n-1, and so would ours", ""),
        ("operator", [ON_GKE], "FAIL", "", "mode: existing, or give their node pool --node-labels=gke-no-de"),
        ("operator", [GKES, NOT_GKES, node(pool="other", labels=GKE)], "PASS", "none is there", ""),
        ("operator", [GKES, NOT_GKES, ON_GKE], "FAIL", "that of GKE offers the GPUs of n-1,", ""),
        ("operator", [GKES], "SKIP", "no node of the pools has any yet", "GKE's does not run on nodes with"),
        ("operator", [ON_EKS], "FAIL", "", "gpu_operator.mode: existing, or select nodes of a node group"),
        ("device_plugin", [ON_EKS], "FAIL", "that of EKS Auto Mode offers", ""),
        ("operator", [node(labels={"eks.amazonaws.com/compute-type": "ec2"})], "PASS", "none is there", ""),
        ("operator", [ON_AKS], "FAIL", "", "or create their node pool with --gpu-driver none"),
        ("existing", [GKES, ON_GKE], "PASS", "the device plugin of GKE offers the GPUs", ""),
        ("existing", [ON_EKS], "PASS", "the device plugin of EKS Auto Mode offers the GPUs", ""),
        ("existing", [ON_AKS], "PASS", "the device plugin of AKS offers the GPUs", ""),
        ("existing", [GKES], "SKIP", "not known whether GKE's offers the GPUs", ""),
        ("existing", [GKES, NOT_GKES], "FAIL", "none of another release is there", ""),
        ("existing", [GKES, NOT_GKES, ON_GKE], "FAIL", "none of another release is there", ""),
        ("existing", [node()], "FAIL", "none of another release is there", ""),
    ],
)
def test_device_plugin_of_the_cloud_is_known_by_its_nodes(
    mode: str, objects: list[Json], verdict: str, fact: str, fix: str
) -> None:
    check = existing.judge_operator if mode == "existing" else existing.judge_device_plugin
    expect(judge(env(mode=mode), False, check, *objects), verdict, fact, fix)


def test_the_example_of_a_clouds_cluster_passes_on_gke() -> None:
    example = load(ROOT / "docs/examples/existing-cloud.yaml")
    pools = [node(labels={**GKE_OFF, **(pool.selector or {})}) for pool in example.pools]
    cluster = live(example, {DAEMON_SET: [GKES], NODE: pools}, has_release=False)
    parts = (existing.checks, nodes.checks, nodes.controllers)
    found = [check.judge(cluster) for part in parts for check in part(example, "kubectl")]
    assert [result.fact for result in found if result.verdict == "FAIL"] == []


@pytest.mark.parametrize(
    ("nfd", "there", "verdict", "fact"),
    [
        (True, [], "PASS", "none is there"),
        (True, [daemons(NFD_IMAGE, OWN)], "PASS", "the stack's own"),
        (True, [daemons(NFD_IMAGE, OTHER)], "FAIL", "two would delete each other's labels"),
        (True, [daemons("x/other", OTHER)], "PASS", "none is there"),
        (False, [], "FAIL", "none but the stack's is there, and gpu_operator.nfd is false"),
        (False, [daemons(NFD_IMAGE, OWN)], "FAIL", "none but the stack's is there"),
        (False, [daemons(NFD_IMAGE, OTHER, ALL)], "PASS", "and tolerates the taints"),
        (False, [daemons(NFD_IMAGE, OTHER, NVIDIAS)], "FAIL", "does not tolerate gpuform.io/gpu-not-ready"),
        (False, [daemons(NFD_IMAGE, OTHER)], "FAIL", "does not tolerate nvidia.com/gpu:NoSchedule"),
    ],
)
def test_foreign_node_feature_discovery_is_refused(
    nfd: bool, there: list[Json], verdict: str, fact: str
) -> None:
    found = judge(env(nfd=nfd), True, existing.judge_feature_discovery, *there)
    expect(found, verdict, fact)
    assert ("gpu_operator.nfd: false" in found.fix) == (nfd and verdict == "FAIL")


def test_unreachable_cluster_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not checked: cluster: " in next(iter(checks(env(), Paths.here(), "e"))).fact, "no such file"

    def away(*asked: Any) -> Any:
        raise Failure("cluster", "connection refused", "look")

    monkeypatch.setattr(existing, "list_objects", away)
    found = list(checks(env(), Paths.here(), "e"))
    assert [one.subject for one in found] == [
        *("GPU operator", "device plugin", "node feature discovery"),
        *("driver and toolkit", "containerd of the nodes", "container runtimes", "health loop"),
    ]
    expect(found[0], "SKIP", "not checked: cluster: connection refused")
    assert found[0].check == "kubectl --kubeconfig /k get clusterpolicies.nvidia.com -o yaml"
    assert len(list(checks(env(mode="existing"), Paths.here(), "e"))) == 3


@pytest.mark.parametrize(
    ("deployment", "made"),
    [
        (None, False),
        ({"resources": []}, False),
        ({"resources": [{"type": RELEASE, "urn": "u"}]}, True),
        ({"pending_operations": [{"type": "creating", "resource": {"type": RELEASE, "urn": "u"}}]}, True),
    ],
)
def test_state_shows_whether_it_has_a_release(tmp_path: Path, deployment: Json | None, made: bool) -> None:
    paths = Paths(root=tmp_path, state=tmp_path / ".gpuform", cache=tmp_path / "cache")
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\n")
    if deployment is not None:
        file = EngineFiles(paths).checkpoint("gpuform", "e")
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"version": 3, "checkpoint": {"latest": deployment}}))
    elsewhere = {"backend": "s3://bucket/state", "secrets_provider": "awskms://alias/key"}
    for state, expected in (({}, made), ({"state": elsewhere}, None)):
        stack = {"config": {"gpuform:environment": declared("existing", {"machine": "g2.5xlarge"}, **state)}}
        (tmp_path / "Pulumi.e.yaml").write_text(json.dumps(stack))
        assert existing.has_release(paths, "e") is expected


WORK = {"kind": "deployment", "pool": "t4", "replicas": 2, "cpu": 2, "memory": "4Gi"}


def quota(hard: Json, namespace: str = "default", name: str = "q", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": hard, **spec}}


def limit(namespace: str = "default", **entry: Json) -> Json:
    limits = [{"type": "Container", **entry}]
    return {"metadata": {"name": "r", "namespace": namespace}, "spec": {"limits": limits}}


def judge_limits(quotas: list[Json], ranges: list[Json], *works: Json) -> tuple[str, str]:
    declared = env(own={"workloads": list(works or (WORK,))})
    found = limits.judge(live(declared, {RESOURCE_QUOTA: quotas, LIMIT_RANGE: ranges}))
    return found.verdict, found.fact


@pytest.mark.parametrize(
    ("hard", "fact"),
    [
        ({"requests.nvidia.com/gpu": "1"}, "allows requests.nvidia.com/gpu 1, and 2 is declared"),
        ({"requests.cpu": "3500m"}, "allows requests.cpu 3500m, and 4 is declared"),
        ({"cpu": "3"}, "allows cpu 3, and 4 is declared"),
        ({"limits.memory": "7Gi"}, "allows limits.memory 7Gi, and 8Gi is declared"),
        ({"pods": "1"}, "allows pods 1, and 2 is declared"),
        ({"limits.cpu": "100"}, "requires a CPU limit, which pods do not declare"),
    ],
)
def test_a_quota_of_others_refuses_pods(hard: Json, fact: str) -> None:
    assert judge_limits([quota(hard)], []) == ("FAIL", f"ResourceQuota default/q {fact}")


@pytest.mark.parametrize(
    "item",
    [
        quota({"requests.nvidia.com/gpu": "2", "requests.cpu": "4", "limits.memory": "8Gi", "pods": "1P"}),
        quota({"pods": "0"}, "other"),
        quota({"pods": "0"}, name="gpuform-gpus"),
        quota({"pods": "0"}, scopes=["Terminating"]),
        quota({"pods": "0"}, scopeSelector={"matchExpressions": []}),
        quota({"services": "0", "count/jobs.batch": "5k"}),
    ],
)
def test_other_quotas_refuse_no_pods(item: Json) -> None:
    assert judge_limits([item], [])[0] == "PASS"


@pytest.mark.parametrize(
    ("entry", "fact"),
    [
        ({"max": {"cpu": "1"}}, "allows each Container cpu 1, and 2 is declared"),
        ({"max": {"nvidia.com/gpu": "0"}}, "allows each Container nvidia.com/gpu 0, and 1 is declared"),
        ({"default": {"cpu": "500m", "memory": "1Gi"}},
         "limits pods by default to cpu 500m, and 2 is declared"),
    ],
)  # fmt: skip
def test_a_range_of_others_refuses_pods(entry: Json, fact: str) -> None:
    """The API server refuses a request above the limit that it has filled in."""
    assert judge_limits([], [limit(**entry)]) == ("FAIL", f"LimitRange default/r {fact}")
    assert judge_limits([], [limit("other", **entry)])[0] == "PASS"


@pytest.mark.parametrize(
    ("there", "verdict"),
    [
        (limit(default={"cpu": "2"}), "PASS"),
        (limit(max={"cpu": "2", "memory": "4Gi"}), "PASS"),
        (limit("other", default={"cpu": "2"}), "FAIL"),
        (limit(default={"memory": "8Gi"}), "FAIL"),
    ],
)
def test_a_range_gives_the_cpu_limit_that_a_quota_requires(there: Json, verdict: str) -> None:
    assert judge_limits([quota({"limits.cpu": "100"})], [there])[0] == verdict


def test_every_workload_of_a_namespace_counts() -> None:
    for namespace, verdict in (("other", "PASS"), ("default", "FAIL")):
        works = WORK, {**WORK, "namespace": namespace}
        assert judge_limits([quota({"pods": "2"})], [], *works)[0] == verdict
    assert list(limits.checks(env(), "kubectl")) == []
