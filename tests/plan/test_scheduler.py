"""The second scheduler as declared: its scoring, which pods name it, its version and its permissions."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuform.stack import policy_check as judging
from infra import versions
from infra.config import parse
from infra.model.eks_support import EKS
from infra.model.environment import Environment
from infra.plan import scheduler, workloads
from infra.plan.render import render
from tests.plan.aws_environments import CLAIMED, SLICED, aws

pytestmark = pytest.mark.unit

POOLS = [
    {"name": "t4", "machine": "g2.5xlarge", "sharing": {"kind": "time_slicing", "replicas": 4}},
    {"name": "mig", "machine": "g4.p1.40g",
     "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}},
    {"name": "whole", "machine": "g4.p4.40g"},
    {"name": "cpu", "machine": "m6i.xlarge"},
]  # fmt: skip
WORK = [
    {"name": "shared", "kind": "pod", "pool": "t4", "image": "a:1"},
    {"name": "pinned", "kind": "job", "gpu_product": "NVIDIA-A100-PCIE-40GB", "image": "a:1"},
    {"name": "none", "kind": "deployment", "pool": "cpu", "image": "a:1"},
    {"name": "anywhere", "kind": "pod", "image": "a:1"},
]


def existing(**changed: Any) -> Environment:
    return parse(
        {
            "name": "e",
            "cluster": {"kind": "existing", "kubeconfig": "/k"},
            "pools": [{**pool, "selector": {"a": str(pool["name"])}} for pool in POOLS],
            "workloads": WORK,
            "scheduling": {"packer": True, "version": "1.33.7"},
            **changed,
        }
    )


def kinds(env: Environment) -> list[str]:
    return [one["kind"] for one in scheduler.manifests(env)]


def one(env: Environment, kind: str) -> dict[str, Any]:
    return next(one for one in scheduler.manifests(env) if one["kind"] == kind)


def config(env: Environment) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(one(env, "ConfigMap")["data"]["config.yaml"])
    return found


def test_gpus_outweigh_everything_that_a_pod_has_not_asked_for() -> None:
    found = config(existing())
    (profile,) = found["profiles"]
    assert profile["schedulerName"] == "gpuform-packer"
    strategy = profile["pluginConfig"][0]["args"]["scoringStrategy"]
    assert strategy["type"] == "MostAllocated"
    assert {one["name"]: one["weight"] for one in strategy["resources"]} == {
        "nvidia.com/gpu": 100,
        "nvidia.com/gpu.shared": 100,
        "nvidia.com/mig-2g.10gb": 100,
        "nvidia.com/mig-3g.20gb": 100,
        "cpu": 1,
        "memory": 1,
    }
    off = {one["name"] for one in profile["plugins"]["score"]["disabled"]}
    assert off == {"NodeResourcesBalancedAllocation", "ImageLocality"}
    assert found["leaderElection"]["resourceName"] == "gpuform-packer"


def test_only_pods_that_ask_for_gpus_name_it() -> None:
    found = {
        made["metadata"]["name"]: made["spec"].get("template", made)["spec"].get("schedulerName")
        for made in workloads.manifests(existing())
    }
    packer = "gpuform-packer"
    assert found == {"shared": packer, "pinned": packer, "none": None, "anywhere": None}
    for made in workloads.manifests(existing(scheduling={})):
        assert "schedulerName" not in made["spec"].get("template", made)["spec"]


def test_pods_that_claim_name_it_too() -> None:
    work = {"name": "train", "kind": "pod", "pool": "p0", "image": "a:1"}
    env = aws(CLAIMED, workloads=[work])
    env = parse({**env.resolved(), "scheduling": {"packer": True}})
    (pod,) = [one for one in workloads.manifests(env) if one["kind"] == "Pod"]
    assert pod["spec"]["schedulerName"] == "gpuform-packer"


def test_nothing_where_it_is_not_asked_for() -> None:
    assert scheduler.manifests(existing(scheduling={})) == ()
    assert "scheduler.yaml" not in render(existing(scheduling={}))
    spaces = [one["metadata"]["name"] for one in workloads.namespaces(existing(scheduling={}))]
    assert spaces == ["gpu-operator", "gpuform-trial"]


def test_another_configuration_is_another_config_map_and_another_pod() -> None:
    other = existing(pools=[{**POOLS[0], "selector": {"a": "b"}}], workloads=[])
    names = {one(env, "ConfigMap")["metadata"]["name"] for env in (existing(), other)}
    assert len(names) == 2
    for env in (existing(), other):
        (volume,) = one(env, "Deployment")["spec"]["template"]["spec"]["volumes"]
        assert volume["configMap"]["name"] == one(env, "ConfigMap")["metadata"]["name"]


def test_its_version_is_the_clusters() -> None:
    def image(env: Environment) -> str:
        pod = one(env, "Deployment")["spec"]["template"]["spec"]
        return str(pod["containers"][0]["image"])

    assert image(existing()) == "registry.k8s.io/kube-scheduler:v1.33.7"
    for minor in EKS:
        env = parse({**aws(SLICED, version=minor).resolved(), "scheduling": {"packer": True}})
        assert image(env).startswith(f"registry.k8s.io/kube-scheduler:v{minor}.")
    assert versions.KUBE_SCHEDULER[versions.KUBERNETES.rpartition(".")[0]] == versions.KUBERNETES


def test_the_embedded_cluster_runs_it_as_a_process() -> None:
    env = parse(
        {
            "name": "e",
            "cluster": {"kind": "embedded"},
            "pools": [{**pool, "nodes": 1} for pool in POOLS],
            "scheduling": {"packer": True},
        }
    )
    assert "Deployment" not in kinds(env)
    assert kinds(env)[-1] == "ConfigMap", "what it runs with comes last, when it may already do what it does"
    assert set(kinds(existing())) - set(kinds(env)) == {"Deployment", "PodDisruptionBudget"}


@pytest.mark.parametrize("cluster", ["existing", "aws"])
def test_the_policies_hold(cluster: str) -> None:
    env = existing()
    if cluster == "aws":
        pool = {**SLICED, "spare": 1}
        env = parse({**aws(pool).resolved(), "scheduling": {"packer": True}})
    judged = list(judging.resources(render(env)))
    assert "kubernetes:apps/v1:Deployment" in {one.type for one in judged}
    assert list(judging.lines(judging.findings(judged))) == []
