"""Manifests of others as a rehearsal starts and counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.errors import Failure, InputError
from infra.model.environment import Environment
from infra.plan import nodes
from lab.rehearse import foreign, pods
from lab.rehearse.foreign import Foreign
from tests.build.aws_environments import aws
from tests.build.environments import on
from tests.lab.rehearse.fake_cluster import FakeCluster

pytestmark = pytest.mark.unit

KINDS = Path(__file__).parents[2] / "manifests" / "kinds.yaml"
PUBLISHED = KINDS.with_name("published.yaml")
SHARED = {"machine": "g4dn.xlarge", "nodes": 8, "sharing": {"kind": "time_slicing", "replicas": 4}}
POD: dict[str, Any] = {
    "containers": [{"name": "a", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
}


def read(folder: Path, env: Environment, *objects: dict[str, Any]) -> Foreign:
    file = folder / "own.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return foreign.read(env, [file])


def of(kind: str, spec: dict[str, Any], name: str = "a", **metadata: Any) -> dict[str, Any]:
    api = {"Deployment": "apps/v1", "CronJob": "batch/v1"}.get(kind, "v1")
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def test_twelve_kinds_are_started_with_all_their_pods() -> None:
    others = foreign.read(on("embedded", SHARED), [KINDS])
    made = {(item["kind"], item["metadata"]["name"]) for item in others.manifests}
    assert ("Namespace", "research") in made
    assert {(work.name, work.kind, work.pods) for work in others.works} == {
        ("pod", "pod", 1),
        ("deployment", "deployment", 2),
        ("stateful", "statefulset", 1),
        ("job", "job", 2),
        ("cron", "job", 1),
        ("jobset-jobset", "deployment", 6),
        ("leaderworkerset-lws", "deployment", 8),
        ("pytorchjob-pytorch", "deployment", 3),
        ("raycluster-ray-0", "deployment", 1),
        ("raycluster-ray-1", "deployment", 2),
        ("inferenceservice-served", "deployment", 2),
        ("sparkapplication-spark", "deployment", 2),
        ("dynamographdeployment-dynamo-0", "deployment", 1),
        ("dynamographdeployment-dynamo-1", "deployment", 2),
    }
    kinds = {"pod": "Pod", "statefulset": "StatefulSet", "job": "Job", "deployment": "Deployment"}
    assert {(kinds[work.kind], work.name) for work in others.works} <= made
    assert [work.pool for work in others.works if work.pool] == ["p0"] * 12, (
        "Ray's head and Dynamo's frontend have no GPU"
    )
    assert others.errors == 13
    assert len(others.notes) == 1
    assert "RayCluster" in others.notes[0]


def test_published_manifests_can_be_started() -> None:
    env = on("embedded", {"machine": "p4d.24xlarge", "nodes": 8, "taints": [{"key": "team", "value": "a"}]})
    others = foreign.read(env, [PUBLISHED])
    made = [(item["kind"], item["metadata"]["name"]) for item in others.manifests]
    assert ("Deployment", "job-gang-0") in made, "Volcano's Job is none of Kubernetes'"
    assert {kind for kind, _ in made} == {"Namespace", "Pod", "Deployment"}
    assert sum(work.pods for work in others.works) == 25
    assert "Volcano" not in str(others.notes)
    assert "Workflow" in others.notes[0]
    assert others.notes[1] == (
        "the runtime is taken to tolerate the pools' taints: of TrainJob default/fine-tune"
    )
    (trained,) = (item for item in others.manifests if item["metadata"]["name"] == "trainjob-fine-tune")
    spec = trained["spec"]["template"]["spec"]
    assert [item["key"] for item in spec["tolerations"]] == ["nvidia.com/gpu", "team"]
    assert spec["nodeSelector"] == {"kubernetes.io/arch": "amd64"}


def test_every_pod_names_its_workload_and_keeps_its_labels(tmp_path: Path) -> None:
    env = on("embedded", {"machine": "g4dn.xlarge", "nodes": 1})
    template = {"metadata": {"labels": {"app.kubernetes.io/name": "theirs"}}, "spec": POD}
    deployment = of("Deployment", {"replicas": 2, "template": template})
    custom = of("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": template}}})
    cron = of("CronJob", {"jobTemplate": {"spec": {"template": {"spec": POD}}}}, "c")
    cron["metadata"] = {"generateName": "c-"}
    for item in read(tmp_path, env, deployment, custom, cron).manifests:
        meta = item["spec"]["template"]["metadata"]
        assert meta["annotations"][foreign.FOREIGN] == item["metadata"]["name"]
        if item["kind"] == "Deployment":
            assert meta["labels"]["app.kubernetes.io/name"] == "theirs"
            assert pods.DURATION not in meta["annotations"]
        else:
            assert (item["kind"], item["metadata"]["name"]) == ("Job", "c")
            assert meta["annotations"][pods.DURATION] == pods.LONG


def test_what_their_pods_depend_on_comes_first_or_is_made(tmp_path: Path) -> None:
    env = on("embedded", {"machine": "g4dn.xlarge", "nodes": 1})
    claim = of("PersistentVolumeClaim", {"storageClassName": "fast"}, "data", namespace="ml")
    pod = of("Pod", {**POD, "serviceAccountName": "reader"}, namespace="ml")
    others = read(tmp_path, env, pod, of("Service", {}), claim)
    assert [(item["kind"], item["metadata"]["name"]) for item in others.manifests] == [
        ("Namespace", "ml"),
        ("StorageClass", "fast"),
        ("PersistentVolumeClaim", "data"),
        ("ServiceAccount", "reader"),
        ("Pod", "a"),
    ]
    assert others.notes == ("1 object of the manifests that place no pod: not applied (Service)",)


def test_a_namespace_of_the_stack_keeps_its_level(tmp_path: Path) -> None:
    pool = {"machine": "g4dn.xlarge", "nodes": 1}
    env = on("embedded", pool, namespaces=[{"name": "ml", "pod_security": "baseline"}])
    space = of("Namespace", {}, "ml")
    others = read(tmp_path, env, space, of("Pod", {**POD, "serviceAccountName": "default"}, namespace="ml"))
    assert [item["kind"] for item in others.manifests] == ["Pod"]


@pytest.mark.parametrize(("kind", "added"), [("aws", 1), ("embedded", 0)])
def test_only_eks_tolerates_the_taint_of_a_requested_resource(tmp_path: Path, kind: str, added: int) -> None:
    pool = {"machine": "g4dn.xlarge", "nodes": 1}
    env = aws(pool) if kind == "aws" else on(kind, pool)
    (made,) = read(tmp_path, env, of("Pod", POD)).manifests
    assert len(made["spec"]["tolerations"]) == added


def test_groups_that_are_calculated_have_nodes_for_them(tmp_path: Path) -> None:
    env = on("openstack", {"machine": "g2.5xlarge", "elastic": {"min": 1, "max": {"nodes": 9}}})
    template = {"metadata": {"labels": {}}, "spec": POD}
    others = read(tmp_path, env, of("Deployment", {"replicas": 3, "template": template}))
    (pool,) = env.pools
    assert nodes.group_size(others.counted(env), pool) == 3
    assert nodes.group_size(pods.halved(others.counted(env)), pool) == 1


@pytest.mark.parametrize(
    ("objects", "path", "fact"),
    [
        ([of("Pod", POD), of("Pod", POD)], "own.yaml:16:3", "Pod default/a is there twice"),
        ([of("Pod", POD, "w0")], "own.yaml:4:3", "default/w0 is also a workload of the stack"),
        ([of("Service", {}), of("WorkflowTemplate", POD)], "--manifests", "has no object that starts pods"),
    ],
)
def test_what_cannot_be_started_is_refused(
    tmp_path: Path, objects: list[dict[str, Any]], path: str, fact: str
) -> None:
    env = on("embedded", {"machine": "g4dn.xlarge", "nodes": 1}, workloads=[{"kind": "pod", "pool": "p0"}])
    with pytest.raises(InputError) as refusal:
        read(tmp_path, env, *objects)
    assert path in refusal.value.path
    assert refusal.value.fact == fact


def test_the_servers_refusal_names_the_option_and_the_check() -> None:
    class Refuses(FakeCluster):
        def apply(self, *_: Any) -> None:
            raise Failure("control plane", "Limit must be set", "run again")

    with pytest.raises(Failure, match="--manifests: Limit must be set; correct them, see `gpuform check x`"):
        Foreign().apply(Refuses(), "gpuform check x")
