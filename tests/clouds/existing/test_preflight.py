"""An existing cluster before an update: parts that are there already, and the way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.clouds.existing.preflight import checks, nodes
from gpuform.clouds.existing.preflight import cluster as existing
from gpuform.clouds.existing.preflight.cluster import LiveCluster
from gpuform.engine.files import EngineFiles
from gpuform.engine.pending import RELEASE
from gpuform.kubernetes.kinds import CLUSTER_POLICY, DAEMON_SET, DEPLOYMENT, NODE
from infra.config import load, parse
from infra.model.environment import Environment

pytestmark = pytest.mark.unit

OWN = ("gpu-operator", "gpu-operator")
CAPI = ("gpu-operator", "nvidia-gpu-operator")
NFD_IMAGE = "registry.k8s.io/nfd/node-feature-discovery:v0.18.3@sha256:0a"
PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"
NVIDIAS = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
ALL = {"operator": "Exists", "effect": "NoSchedule"}
Json = dict[str, Any]


def env(**operator: Any) -> Environment:
    """With these fields of ``gpu_operator``; ``pool`` changes the pool, and ``own`` adds top-level fields."""
    pool = {"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}, **operator.pop("pool", {})}
    cluster, own = {"kind": "existing", "kubeconfig": "/nowhere/kubeconfig"}, operator.pop("own", {})
    operators = {"gpu_operator": operator} if operator else {}
    return parse({"name": "e", "cluster": cluster, "pools": [pool], **operators, **own})


def metadata(name: str, release: tuple[str, str] | None) -> Json:
    keys = ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
    return {"name": name, "annotations": dict(zip(keys, release, strict=True)) if release else {}}


def policy(release: tuple[str, str] | None) -> Json:
    return {"metadata": metadata("cluster-policy", release)}


def daemons(image: str, release: tuple[str, str] | None, *tolerations: Json, owned: bool = False) -> Json:
    """A DaemonSet; ``owned`` by NVIDIA's operator."""
    owners = [{"kind": "ClusterPolicy", "name": "cluster-policy"}] if owned else []
    pod = {"containers": [{"image": image}], "tolerations": list(tolerations)}
    about = {**metadata("daemons", release), "namespace": "there", "ownerReferences": owners}
    return {"metadata": about, "spec": {"template": {"spec": pod}}}


def judge(env: Environment, has_release: bool | None, check: Any, *objects: Json) -> Any:
    live: dict[str, list[Json]] = {CLUSTER_POLICY: [], DAEMON_SET: [], NODE: []}
    for item in objects:
        live[item.get("kind") or (DAEMON_SET if "spec" in item else CLUSTER_POLICY)].append(item)
    return check(LiveCluster(env, has_release, live.__getitem__))


@pytest.mark.parametrize(
    ("mode", "policies", "has_release", "verdict", "fact"),
    [
        ("operator", [], False, "PASS", "none is there"),
        ("operator", [OWN], True, "PASS", "the stack's own"),
        ("operator", [OWN], None, "SKIP", "the stack's state is elsewhere"),
        (
            "operator",
            [OWN],
            False,
            "FAIL",
            "of Helm release gpu-operator/gpu-operator: Helm refuses a second",
        ),
        ("operator", [CAPI], True, "FAIL", "of Helm release gpu-operator/nvidia-gpu-operator"),
        ("operator", [None], None, "FAIL", "cluster-policy is there, not by Helm"),
        ("operator", [OWN, CAPI], True, "FAIL", "nvidia-gpu-operator"),
        ("device_plugin", [CAPI], False, "FAIL", "two device plugins would offer the same GPUs; "),
        ("existing", [OWN], True, "FAIL", "; use gpu_operator.mode: operator, or install one first"),
    ],
)
def test_an_operator_that_is_there(
    mode: str, policies: list[Any], has_release: bool | None, verdict: str, fact: str
) -> None:
    found = judge(env(mode=mode), has_release, existing.judge_operator, *map(policy, policies))
    assert found.verdict == verdict
    assert fact in f"{found.fact}; {found.fix}"
    assert bool(found.fix) == (verdict != "PASS")


TAINTED = {"pool": {"taints": [{"key": "team", "value": "a", "effect": "NoExecute"}]}}
TEAM = {"key": "team", "value": "a", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("declared", "tolerations", "verdict", "fact"),
    [
        ({}, [NVIDIAS], "PASS", "and tolerates the taints of the nodes"),
        ({}, [{**NVIDIAS, "operator": "Equal", "value": "present"}], "FAIL", "nvidia.com/gpu:NoSchedule"),
        ({"gpu_taint": "gpu"}, [NVIDIAS], "FAIL", "there/daemons does not tolerate gpu:NoSchedule"),
        (TAINTED, [ALL], "FAIL", "there/daemons does not tolerate team:NoExecute"),
        (TAINTED, [ALL, TEAM], "PASS", "and tolerates"),
        (TAINTED, [{"operator": "Exists"}], "PASS", "and tolerates"),
    ],
)
def test_the_clusters_own_operator_must_reach_the_nodes(
    declared: Json, tolerations: list[Json], verdict: str, fact: str
) -> None:
    own = env(mode="existing", **{**declared})
    plugin = daemons(PLUGIN_IMAGE, None, *tolerations, owned=True)
    found = judge(own, None, existing.judge_operator, policy(CAPI), plugin)
    assert found.verdict == verdict
    assert fact in found.fact


def test_another_device_plugin_is_found_by_its_image() -> None:
    other = daemons("registry.example/k8s-device-plugin@sha256:0a", None, ALL)
    found = judge(env(), True, existing.judge_device_plugin, daemons(PLUGIN_IMAGE, OWN), other)
    assert found.verdict == "FAIL"
    assert found.fact == "there/daemons is there, not by Helm: two would offer the same GPUs"
    operators = daemons(PLUGIN_IMAGE, None, owned=True)
    assert judge(env(), False, existing.judge_device_plugin, operators).verdict == "PASS"
    found = judge(env(mode="existing"), True, existing.judge_operator, other)
    assert found.fact == "there/daemons is there, not by Helm, and tolerates the taints of the nodes"


def node(labels: Json | None = None, pool: str = "b") -> Json:
    return {
        "kind": NODE,
        "metadata": {"name": f"n-{len(labels or {})}", "labels": {"a": pool, **(labels or {})}},
    }


GKE, AUTO = {"cloud.google.com/gke-accelerator": "nvidia-l4"}, {"eks.amazonaws.com/compute-type": "auto"}
GKE_OFF = {**GKE, "gke-no-default-nvidia-gpu-device-plugin": "true"}
AKS = {"kubernetes.azure.com/dcgm-exporter": "enabled"}
GKES = daemons("gke.gcr.io/nvidia-gpu-device-plugin@sha256:0a", None, ALL)


@pytest.mark.parametrize(
    ("mode", "objects", "verdict", "said"),
    [
        ("operator", [GKES, node(GKE)], "FAIL", "that of GKE offers the GPUs of n-1, and so would ours; "),
        ("operator", [node(GKE)], "FAIL", "mode: existing, or give their node pool --node-labels=gke-no-de"),
        ("operator", [GKES, node(GKE_OFF), node(GKE, "other")], "PASS", "none is there"),
        ("operator", [GKES, node(GKE_OFF), node(GKE)], "FAIL", "that of GKE offers the GPUs of n-1,"),
        ("operator", [GKES], "SKIP", "no node of the pools has any yet; GKE's does not run on nodes with"),
        ("operator", [node(AUTO)], "FAIL", "gpu_operator.mode: existing, or select nodes of a node group"),
        ("device_plugin", [node(AUTO)], "FAIL", "that of EKS Auto Mode offers"),
        ("operator", [node({"eks.amazonaws.com/compute-type": "ec2"})], "PASS", "none is there"),
        ("operator", [node(AKS)], "FAIL", "or create their node pool with --gpu-driver none"),
        ("existing", [GKES, node(GKE)], "PASS", "the device plugin of GKE offers the GPUs"),
        ("existing", [node(AUTO)], "PASS", "the device plugin of EKS Auto Mode offers the GPUs"),
        ("existing", [node(AKS)], "PASS", "the device plugin of AKS offers the GPUs"),
        ("existing", [GKES], "SKIP", "not known whether GKE's offers the GPUs"),
        ("existing", [GKES, node(GKE_OFF)], "FAIL", "none of another release is there"),
        ("existing", [GKES, node(GKE_OFF), node(GKE)], "FAIL", "none of another release is there"),
        ("existing", [node()], "FAIL", "none of another release is there"),
    ],
)  # fmt: skip
def test_a_device_plugin_of_the_cloud(mode: str, objects: list[Json], verdict: str, said: str) -> None:
    check = existing.judge_operator if mode == "existing" else existing.judge_device_plugin
    found = judge(env(mode=mode), False, check, *objects)
    assert found.verdict == verdict
    assert said in f"{found.fact}; {found.fix}"


def test_the_example_of_a_clouds_cluster_passes_on_gke() -> None:
    example = load(Path(__file__).parents[3] / "docs/examples/existing-cloud.yaml")
    pools = [node({**GKE_OFF, **(pool.selector or {})}) for pool in example.pools]
    for item in pools:
        item["status"] = {"nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0"}}
    live = {CLUSTER_POLICY: [], DAEMON_SET: [GKES], NODE: pools, DEPLOYMENT: []}
    cluster = LiveCluster(example, False, live.__getitem__)
    found = [
        check.judge(cluster)
        for part in (existing.checks, nodes.checks, nodes.controllers)
        for check in part(example, "kubectl")
    ]
    assert [result.fact for result in found if result.verdict == "FAIL"] == []


@pytest.mark.parametrize(
    ("nfd", "there", "verdict", "fact"),
    [
        (True, [], "PASS", "none is there"),
        (True, [daemons(NFD_IMAGE, OWN)], "PASS", "the stack's own"),
        (True, [daemons(NFD_IMAGE, CAPI)], "FAIL", "two would delete each other's labels"),
        (True, [daemons("x/other", CAPI)], "PASS", "none is there"),
        (False, [], "FAIL", "none but the stack's is there, and gpu_operator.nfd is false"),
        (False, [daemons(NFD_IMAGE, OWN)], "FAIL", "none but the stack's is there"),
        (False, [daemons(NFD_IMAGE, CAPI, ALL)], "PASS", "and tolerates the taints"),
        (False, [daemons(NFD_IMAGE, CAPI, NVIDIAS)], "FAIL", "does not tolerate gpuform.io/gpu-not-ready"),
        (False, [daemons(NFD_IMAGE, CAPI)], "FAIL", "does not tolerate nvidia.com/gpu:NoSchedule"),
    ],
)
def test_node_feature_discovery_that_is_there(nfd: bool, there: list[Json], verdict: str, fact: str) -> None:
    found = judge(env(nfd=nfd), True, existing.judge_feature_discovery, *there)
    assert found.verdict == verdict
    assert fact in found.fact
    assert ("gpu_operator.nfd: false" in found.fix) == (nfd and verdict == "FAIL")


def test_a_cluster_that_is_away_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*asked: Any) -> Any:
        raise Failure("cluster", "connection refused", "look")

    monkeypatch.setattr(existing, "list_objects", away)
    found, *others = checks(env(), Paths.here(), "e")
    assert [one.subject for one in (found, *others)] == [
        *("GPU operator", "device plugin", "node feature discovery"),
        *("driver and toolkit", "container runtimes", "health loop"),
    ]
    assert (found.verdict, found.fact) == ("SKIP", "not checked: cluster: connection refused")
    assert found.check == "kubectl --kubeconfig /nowhere/kubeconfig get clusterpolicies.nvidia.com -o yaml"
    assert len(list(checks(env(mode="existing"), Paths.here(), "e"))) == 3


def test_a_kubeconfig_that_is_not_there_is_not_checked_either() -> None:
    found, *_ = checks(env(), Paths.here(), "e")
    assert found.verdict == "SKIP"
    assert found.fact.startswith("not checked: cluster: ")


@pytest.mark.parametrize(
    ("deployment", "made"),
    [
        (None, False),
        ({"resources": []}, False),
        ({"resources": [{"type": RELEASE, "urn": "u"}]}, True),
        ({"pending_operations": [{"type": "creating", "resource": {"type": RELEASE, "urn": "u"}}]}, True),
    ],
)
def test_whether_the_state_has_a_release(tmp_path: Path, deployment: Json | None, made: bool | None) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\n")
    declared = {"name": "e", "cluster": {"kind": "existing", "kubeconfig": "/k"}}
    declared["pools"] = [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}]  # type: ignore[assignment]
    stack = {"config": {"gpuform:environment": declared}}
    (tmp_path / "Pulumi.e.yaml").write_text(json.dumps(stack))
    paths = Paths(root=tmp_path, state=tmp_path / ".gpuform", cache=tmp_path / "cache")
    if deployment is not None:
        file = EngineFiles(paths).checkpoint("gpuform", "e")
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"version": 3, "checkpoint": {"latest": deployment}}))
    assert existing.has_release(paths, "e") is made
    declared["state"] = {"backend": "s3://bucket/state", "secrets_provider": "awskms://alias/key"}  # type: ignore[assignment]
    (tmp_path / "Pulumi.e.yaml").write_text(json.dumps(stack))
    assert existing.has_release(paths, "e") is None
