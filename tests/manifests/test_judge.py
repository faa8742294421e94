"""Manifests of others against the pools of a stack: what is found where, and what --fix adds."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuform.manifests import documents, edit, judge
from gpuform.manifests.documents import Document
from gpuform.manifests.finding import Finding
from gpuform.manifests.pods import FoundPod, find
from infra.model.environment import Environment
from tests.build.aws_environments import aws
from tests.build.environments import on

pytestmark = pytest.mark.unit

KINDS = Path(__file__).with_name("kinds.yaml").read_text()
SHARED = {"kind": "time_slicing", "replicas": 4}
QUEUES = {"teams": [{"name": "team", "namespaces": ["research"], "quota": {"p0": 40}}]}
PLAIN = {"machine": "g4dn.xlarge"}


DEMANDING = on(
    "embedded",
    {**PLAIN, "nodes": 20, "sharing": SHARED},
    {"machine": "p4d.24xlarge", "nodes": 1, "sharing": {"kind": "mig", "layout": {"3g.20gb": 2}}},
    gpu_operator={"runtime_class": "nvidia"},
    scheduling={"packer": True},
    queues=QUEUES,
)
"""A RuntimeClass, a taint, a scheduler of its own, and a namespace with a queue."""


def pods_of(given: list[Document]) -> list[FoundPod]:
    return [pod for document in given for pod in find(document)]


def found(env: Environment, text: str, namespace: str = "default") -> list[Finding]:
    given = documents.parse("f", text)
    return judge.judge(env, pods_of(given), given, namespace).findings


def facts(env: Environment, text: str, namespace: str = "default") -> list[str]:
    return [f"{one.level} {one.path}: {one.fact}" for one in found(env, text, namespace)]


def fixed(env: Environment, text: str) -> str:
    additions = [item for finding in found(env, text) for item in finding.additions]
    result, left_out = edit.add("f", text, additions)
    assert left_out == []
    return result


def pod(spec: str = "", requests: str = "nvidia.com/gpu: 1") -> str:
    """A pod on any pool with the taint of GPUs, and further lines of its spec."""
    return f"""
kind: Pod
metadata: {{name: a}}
spec:
  {spec or "{}"}
  tolerations: [{{key: nvidia.com/gpu, operator: Exists}}]
  containers: [{{name: c, image: a:1, resources: {{limits: {{{requests}}}}}}}]
""".replace("  {}\n", "")


TEMPLATES = {
    "Pod": "spec",
    "Deployment": "spec.template.spec",
    "StatefulSet": "spec.template.spec",
    "Job": "spec.template.spec",
    "CronJob": "spec.jobTemplate.spec.template.spec",
    "JobSet": "spec.replicatedJobs[0].template.spec.template.spec",
    "LeaderWorkerSet": "spec.leaderWorkerTemplate.workerTemplate.spec",
    "PyTorchJob": "spec.pytorchReplicaSpecs.Worker.template.spec",
    "RayCluster": "spec.workerGroupSpecs[0].template.spec",
    "InferenceService": "spec.predictor",
    "SparkApplication": "spec.executor",
    "DynamoGraphDeployment": "spec.services.Worker.extraPodSpec",
}
QUEUED_BY_PODS = {
    "InferenceService": "spec.predictor.labels",
    "SparkApplication": "spec.executor.labels",
    "DynamoGraphDeployment": "spec.services.Worker.labels",
    "CronJob": "spec.jobTemplate.metadata.labels",
}
"""Where the label of the queue goes; else in metadata.labels."""


def test_in_each_kind_all_is_found_that_its_pods_lack_for_gpus() -> None:
    env = DEMANDING.model_copy(update={"namespaces": ()})
    by_kind: dict[str, set[str]] = {}
    for one in found(env, KINDS):
        if "Pod Security" not in one.fact:
            by_kind.setdefault(one.document.kind, set()).add(one.path)
    queue = "[kueue.x-k8s.io/queue-name]"
    expected = {}
    for kind, spec in TEMPLATES.items():
        keys = ["tolerations", "schedulerName"] + ["runtimeClassName"] * (kind != "SparkApplication")
        expected[kind] = {f"{spec}.{key}" for key in keys}
        expected[kind].add(QUEUED_BY_PODS.get(kind, "metadata.labels") + queue)
    expected["StatefulSet"].add("spec.template.spec.containers[0].resources.limits[nvidia.com/gpu.shared]")
    assert by_kind == expected


def test_the_job_of_another_api_group_gets_its_queue_by_its_pods() -> None:
    spec = yaml.safe_load(pod(requests="nvidia.com/gpu.shared: 1"))["spec"]
    task = {"template": {"spec": spec}}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"tasks": [task]}}
    given = found(DEMANDING, yaml.safe_dump(job), "research")
    paths = [one.path for one in given if "queue" in one.path]
    assert paths == ["spec.tasks[0].template.metadata.labels[kueue.x-k8s.io/queue-name]"]


def test_what_is_fixed_has_no_finding_and_is_not_changed_again() -> None:
    once = fixed(DEMANDING, KINDS)
    left = [one for one in found(DEMANDING, once) if "Pod Security" not in one.fact]
    assert left == []
    assert fixed(DEMANDING, once) == once
    assert [line for line in KINDS.splitlines() if line not in once.splitlines() and "{" not in line] == []
    assert "nvidia.com/gpu.shared: 1 # a share" in once
    assert len(list(yaml.safe_load_all(once))) == len(TEMPLATES)


def test_pods_are_counted() -> None:
    pods = [one for one in pods_of(documents.parse("f", KINDS)) if one.resources("nvidia.com/")]
    counts = {one.document.kind: one.count for one in pods}
    assert counts == {
        **{"Pod": 1, "Deployment": 2, "StatefulSet": 1, "Job": 2, "CronJob": 1, "JobSet": 6},
        **{"LeaderWorkerSet": 8, "PyTorchJob": 3, "RayCluster": 2, "InferenceService": 2},
        **{"SparkApplication": 2, "DynamoGraphDeployment": 2},
    }


CASES = yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=[(case["found"] or ["none"])[0][:60] for case in CASES])
def test_what_is_found(case: dict[str, Any]) -> None:
    text = yaml.safe_dump({"kind": "Pod", "spec": case["spec"]})
    assert facts(on("embedded", *case["pools"], **case.get("env", {})), text) == case["found"]


def test_a_pod_with_adapters_gets_the_right_to_lock_memory() -> None:
    env = on("embedded", {"machine": "p5.48xlarge", "rdma": {}})
    text = fixed(env, pod(requests="nvidia.com/gpu: 8, rdma/rdma_shared_device_a: 1"))
    assert "IPC_LOCK" in text
    assert found(env, text) == []


def test_each_template_of_a_workflow_is_judged() -> None:
    container = {"image": "a:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    templates = [{"name": name, "container": container} for name in ("a", "b")]
    text = yaml.safe_dump({"kind": "Workflow", "spec": {"templates": templates}})
    paths = {one.path for one in found(on("embedded", PLAIN), text) if "a pod requests" in one.fact}
    limit = "container.resources.limits[nvidia.com/gpu]"
    assert paths == {f"spec.templates[{index}].{limit}" for index in (0, 1)}


CLAIM = """
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: d, exactly: {deviceClassName: CLASS}}]}}}
---
"""


@pytest.mark.parametrize(
    ("sharing", "device_class", "expected"),
    [
        ("dra", "gpu.nvidia.com", []),
        ("dra", "mig.nvidia.com", ["no pool has devices of class mig.nvidia.com for claims"]),
        ("exclusive", "gpu.nvidia.com", ["no pool has devices of class gpu.nvidia.com for claims"]),
        ("exclusive", "dra.net", []),
    ],
)
def test_claims_are_judged_by_their_device_class(
    sharing: str, device_class: str, expected: list[str]
) -> None:
    claims = "resourceClaims: [{name: g, resourceClaimTemplateName: t}]"
    text = CLAIM.replace("CLASS", device_class) + pod(claims, "cpu: 1")
    if device_class == "dra.net":
        text = text.replace("  tolerations: [{key: nvidia.com/gpu, operator: Exists}]\n", "")
    pools = {**PLAIN, "sharing": {"kind": sharing}}
    assert [one.fact for one in found(on("embedded", pools), text)] == expected


def test_labels_that_others_set_are_none_of_our_business() -> None:
    text = pod("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-t4, example.com/owner: a}")
    assert facts(on("existing", PLAIN), text) == []


@pytest.mark.parametrize(
    ("selector", "path"),
    [
        ("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}", None),
        ("nodeSelector: {karpenter.k8s.aws/instance-gpu-name: a10g}", None),
        ("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-b200}", "cloud.google.com/gke-accelerator"),
        ("nodeSelector: {karpenter.k8s.aws/instance-gpu-name: t4}", "karpenter.k8s.aws/instance-gpu-name"),
    ],
)
def test_labels_of_clouds_that_name_a_gpu_select_only_pools_with_it(selector: str, path: str | None) -> None:
    env = on("existing", {"gpu": {"models": ["L4"], "count": 1}}, {"gpu": {"models": ["A10G"], "count": 1}})
    paths = [one.path for one in found(env, pod(selector))]
    assert paths == ([f"spec.nodeSelector[{path}]"] if path else [])


def test_pods_that_the_pools_cannot_hold_wait_and_the_stack_s_own_come_first() -> None:
    env = on("embedded", {**PLAIN, "nodes": 4}, workloads=[{"pool": "p0"}])
    template = yaml.safe_load(pod())["spec"]
    text = yaml.safe_dump({"kind": "Job", "spec": {"parallelism": 5, "template": {"spec": template}}})
    (line,) = facts(env, text)
    assert line.endswith(
        "5 pods of 1 nvidia.com/gpu: 3 would start and 2 wait, since the pools have 4 at most"
    )


@pytest.mark.parametrize(
    ("scaler", "waits"),
    [
        ("", None),
        ("kind: HorizontalPodAutoscaler\nspec: {maxReplicas: 4, ", None),
        ("kind: HorizontalPodAutoscaler\nspec: {maxReplicas: 6, ", 2),
        ("kind: ScaledObject\nspec: {maxReplicaCount: 7, ", 3),
        ("kind: ScaledObject\nspec: {", 96),
    ],
)
def test_an_autoscaler_starts_its_maximum(scaler: str, waits: int | None) -> None:
    env = on("embedded", {**PLAIN, "nodes": 4})
    spec = {"replicas": 2, "template": {"spec": yaml.safe_load(pod())["spec"]}}
    text = yaml.safe_dump({"kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    target = "scaleTargetRef: {kind: Deployment, name: web}}\nmetadata: {name: by-load}\n"
    lines = facts(env, f"{text}---\n{scaler}{target}" if scaler else text)
    if waits is None:
        assert lines == []
        return
    (line,) = lines
    by = scaler.partition("\n")[0].removeprefix("kind: ")
    assert f"up to {4 + waits} pods by {by} by-load, of 1 nvidia.com/gpu: 4 would start and {waits}" in line
    assert facts(env, f"{text}---\n{scaler}{target}".replace("name: web}}", "name: other}}")) == []


RICH = """
kind: Job
metadata: {name: a, namespace: research, labels: {kueue.x-k8s.io/queue-name: team}}
spec:
  template:
    metadata: {labels: {a: b}}
    spec:
      hostNetwork: true
      nodeSelector: {a: b}
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
        {matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}
      tolerations: [{key: nvidia.com/gpu, operator: Exists}]
      securityContext: {runAsUser: 0, seccompProfile: {type: RuntimeDefault}}
      volumes: [{name: v, hostPath: {path: /}}]
      resourceClaims: [{name: c, resourceClaimTemplateName: t}]
      containers:
        - name: c
          image: a:1
          env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
          securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN], drop: [ALL]}}
          resources: {limits: {nvidia.com/gpu.shared: 1, cpu: 2}, requests: {nvidia.com/gpu.shared: 1}}
"""


def test_what_the_pod_security_of_the_namespace_refuses() -> None:
    end = ", and namespace research has Pod Security restricted"
    refused = [one for one in found(DEMANDING, RICH) if one.fact.endswith(end)]
    assert [
        (one.path.removeprefix("spec.template.spec."), one.fact.removesuffix(end)) for one in refused
    ] == [
        ("hostNetwork", "has hostNetwork"),
        ("volumes[0]", "has a volume of kind hostPath"),
        ("containers[0].securityContext", "container c is privileged"),
        ("containers[0].securityContext", "container c adds SYS_ADMIN"),
        ("containers[0].securityContext", "container c does not set allowPrivilegeEscalation: false"),
        ("containers[0].securityContext", "container c does not set runAsNonRoot: true"),
        ("containers[0].securityContext", "container c runs as user 0"),
    ]


def places(value: Any, keys: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [keys, *(place for key, item in inner for place in places(item, (*keys, key)))]


DOCUMENTS = [*yaml.safe_load_all(KINDS), yaml.safe_load(RICH)]
PLACES = [(index, keys) for index, one in enumerate(DOCUMENTS) for keys in places(one) if len(keys) > 1]


@given(
    place=st.sampled_from(PLACES),
    value=st.sampled_from([None, "x", 3, 0, -1, True, [], [None], {}, {"x": None}]),
)
def test_nonsense_in_a_manifest_is_no_traceback(place: tuple[int, tuple[str | int, ...]], value: Any) -> None:
    document = copy.deepcopy(DOCUMENTS[place[0]])
    target = document
    for key in place[1][:-1]:
        target = target[key]
    target[place[1][-1]] = value
    for finding in found(DEMANDING, yaml.safe_dump(document)):
        assert finding.to_json()["line"] > 0


PUBLISHED = Path(__file__).with_name("published.yaml").read_text()


def test_published_manifests_have_no_finding_on_eks_with_nodes_that_hold_them() -> None:
    """EKS tolerates the taint of whole GPUs itself."""
    env = aws({"machine": "p4d.24xlarge", "nodes": 8}, {"machine": "m6i.4xlarge", "nodes": 2})
    assert facts(env, PUBLISHED) == []
    given = documents.parse("f", PUBLISHED)
    assert len(given) == 13
    assert len([one for one in pods_of(given) if one.resources("nvidia.com/gpu")]) == 15


def test_elsewhere_their_only_fault_is_the_toleration_that_most_lack() -> None:
    env = on("embedded", {"machine": "p4d.24xlarge", "nodes": 8}, {"machine": "m6i.4xlarge", "nodes": 2})
    found = facts(env, PUBLISHED)
    assert len(found) == 13
    assert all("tolerations: the nodes of pool p0 have the taint" in text for text in found)
    assert facts(env, fixed(env, PUBLISHED)) == []


def train_job(resources: str, more: str = "") -> str:
    return f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: train, namespace: research}}
spec:
  runtimeRef: {{name: torch-distributed}}
  trainer: {{numNodes: 2, resourcesPerNode: {{limits: {{{resources}}}}}}}
{more}"""


_JOBS = "trainingRuntimeSpec.template.spec.replicatedJobs"
PATCHED = """
  runtimePatches:
    - manager: team
      trainingRuntimeSpec: {template: {spec: {replicatedJobs: [
        {name: node, template: {spec: {template: {spec: {nodeSelector: {gpuform.io/pool: p1}}}}}}]}}}
"""
OVERRIDDEN = """
  podTemplateOverrides:
    - {targetJobs: [{name: node}], spec: {nodeSelector: {gpuform.io/pool: p1}}}
"""


@pytest.mark.parametrize(
    ("patch", "place"),
    [
        ("", ""),
        (PATCHED, f"spec.runtimePatches[0].{_JOBS}[0].template.spec.template.spec"),
        (OVERRIDDEN, "spec.podTemplateOverrides[0].spec"),
    ],
)
def test_a_train_job_is_judged_without_what_its_runtime_may_have(patch: str, place: str) -> None:
    """Its runtime may tolerate the taint and name the RuntimeClass; no patch undoes a selector."""
    at = "spec.trainer.resourcesPerNode.limits"
    waits = "1 would start and 1 wait, since the pools have 16 at most"
    label = "metadata.labels[kueue.x-k8s.io/queue-name]"
    queue = f"warning {label}: namespace research has queue team, and these pods take GPUs past it"
    assert facts(DEMANDING, train_job("nvidia.com/mig-1g.5gb: 1", patch)) == [
        f"error {at}[nvidia.com/mig-1g.5gb]: no pool offers nvidia.com/mig-1g.5gb"
    ]
    assert facts(DEMANDING, train_job("nvidia.com/mig-3g.20gb: 16", patch)) == [
        queue,
        f"warning {at}[nvidia.com/mig-3g.20gb]: 2 pods of 16 nvidia.com/mig-3g.20gb: {waits}",
    ]
    wrong = [
        one for one in found(DEMANDING, train_job("nvidia.com/gpu.shared: 1", patch)) if one.level == "error"
    ]
    assert [one.path for one in wrong] == ([f"{place}.nodeSelector[gpuform.io/pool]"] if place else [])
