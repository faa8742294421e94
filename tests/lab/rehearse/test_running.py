"""What runs on a cluster, as a rehearsal begins with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.adopt import objects
from gpuform.adopt.objects import Found
from gpuform.checkout.errors import InputError
from gpuform.kubernetes.kinds import NODE, POD
from infra.model.environment import Environment
from lab.rehearse import running
from tests.build.clusters import SECRET, node, pod
from tests.build.environments import on

pytestmark = pytest.mark.unit

A100 = {"gpu": {"models": ["A100-40GB"], "count": 1}, "selector": {"rack": "7"}}
GPU = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}}


def env(**more: Any) -> Environment:
    return on("existing", A100, **more)


GPU_NODE = node(
    "gpu-1",
    {
        "rack": "7",
        "topology.kubernetes.io/zone": "a",
        "node.kubernetes.io/instance-type": "r750",
        "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB",
        "nvidia.com/gpu.count": "2",
        "feature.node.kubernetes.io/cpu-cpuid.AVX": "true",
    },
    {"nvidia.com/gpu": 2},
    taints=[
        {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"},
        {"key": "team", "value": "ml", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ],
    unschedulable=True,
)
OTHER = node("gpu-2", {"rack": "8", "nvidia.com/gpu.product": "Tesla-T4"}, {"nvidia.com/gpu": 1})


def found(*pods: Any, nodes: tuple[Any, ...] = (GPU_NODE, OTHER)) -> Found:
    return Found({NODE: nodes, POD: pods}, lambda namespace, name: None)


def read(*pods: Any, environment: Environment | None = None, hashed: bool = False) -> running.Running:
    return running.read(environment or env(), found(*pods), hashed)


def started(now: running.Running) -> dict[str, Any]:
    return {
        f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}": item
        for item in now.pods.manifests
        if item["kind"] == "Deployment"
    }


def test_a_node_is_simulated_as_it_is_without_what_the_platform_sets() -> None:
    daemon = pod(
        "agent", owner=("DaemonSet", "agent"), resources={"requests": {"cpu": "1500m", "memory": "8Gi"}}
    )
    dns = pod("dns", namespace="kube-system", resources={"requests": {"cpu": "500m", "memory": "1Gi"}})
    first, second = read(pod("a"), daemon, dns).nodes
    meta = first["metadata"]
    assert meta["name"] == "gpu-1"
    assert meta["labels"] == {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "gpu-1.lan",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "r750",
        "rack": "7",
        "topology.kubernetes.io/zone": "a",
    }
    simulated = {key.rpartition("/")[2]: value for key, value in meta["annotations"].items()}
    assert simulated["cpu"] == "14000m"
    assert simulated["memory"] == f"{111 * 1024}Mi"
    assert simulated["pods"] == "108"
    assert simulated["gpu-count"] == "2", "as labelled, whatever the pool declares"
    assert first["spec"] == {
        "taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}],
        "unschedulable": True,
    }
    assert "gpu-count" not in str(second["metadata"]["annotations"]), "no pool selects it"


def test_pods_of_one_controller_are_one_deployment_on_their_present_nodes() -> None:
    labels = {"app": "web", "pod-template-hash": "5d8f", "kueue.x-k8s.io/queue-name": "q"}
    owner = "ReplicaSet", "web-5d8f"
    web = [pod(f"web-5d8f-{name}", "gpu-1", owner, labels=labels, resources=GPU) for name in "xy"]
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    db = pod("db-0", "gpu-2", ("StatefulSet", "db"), topologySpreadConstraints=[spread])
    made = started(now := read(*web, db, pod("bare")))
    assert set(made) == {"lab/web", "lab/db", "lab/bare"}
    template = made["lab/web"]["spec"]["template"]
    assert made["lab/web"]["spec"]["replicas"] == 2
    assert "kueue" not in str(template["metadata"])
    assert template["metadata"]["labels"]["app"] == "web"
    terms = template["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert terms[0]["preference"]["matchExpressions"][0]["values"] == ["gpu-1.lan"]
    assert template["spec"]["containers"][0]["resources"] == GPU
    assert made["lab/db"]["spec"]["template"]["spec"]["topologySpreadConstraints"] == [spread]
    assert [(work.name, work.pods, work.pool, work.count) for work in now.pods.works] == [
        ("bare", 1, None, None),
        ("db", 1, None, None),
        ("web", 2, "p0", 1),
    ]
    assert SECRET not in json.dumps([now.nodes, now.pods.manifests])
    assert now.pods.notes[0] == "pods that run now, started anew: 4"


def test_what_the_stack_or_the_node_brings_is_not_started() -> None:
    own = {"gpuform.io/environment": "e", "app.kubernetes.io/name": "w"}
    others = [
        pod("own", labels=own),
        pod("dns", namespace="kube-system"),
        pod("operator", namespace="gpu-operator"),
        pod("kueue", namespace="kueue-system"),
        pod("keda", namespace="gpuform-keda"),
        pod("prometheus", namespace="monitoring"),
        pod("agent", owner=("DaemonSet", "agent")),
        pod("static", owner=("Node", "gpu-1")),
        pod("done", phase="Succeeded"),
        pod("waiting", on_node="", phase="Pending"),
    ]
    now = read(pod("kept"), *others, environment=env(monitoring={}))
    assert set(started(now)) == {"lab/kept"}
    assert now.pods.notes == (
        "pods that run now, started anew: 1",
        "in no pool, simulated without GPUs: gpu-2",
    )


def test_what_cannot_be_started_is_counted_with_the_reason() -> None:
    now = read(
        pod("kept"),
        pod("claims", resourceClaims=[{"name": "gpu"}]),
        pod("t4", "gpu-2", resources=GPU),
        pod("fargate", "elsewhere"),
    )
    assert set(started(now)) == {"lab/kept"}
    assert now.pods.notes[1:4] == (
        "not started: 1 pod on nodes that are not listed",
        "not started: 1 pod with GPUs of nodes that belong to no pool",
        "not started: 1 pod with claims (DRA)",
    )


def test_priority_classes_and_namespaces_of_others_come_first() -> None:
    declared = env(priorities={"gpu-high": 9}, namespaces=[{"name": "team", "quota": {"p0": 1}}])
    pods = (
        pod("a", priorityClassName="gpu-high", priority=9, namespace="team"),
        pod("b", priorityClassName="batch", priority=-5),
        pod("c", priorityClassName="system-node-critical", priority=2000001000),
    )
    kinds = [
        (item["kind"], item["metadata"]["name"]) for item in read(*pods, environment=declared).pods.manifests
    ]
    assert kinds[:2] == [("Namespace", "lab"), ("PriorityClass", "batch")]
    assert [kind for kind, _ in kinds[2:]] == ["Deployment"] * 3


def test_equal_names_of_two_controllers_stay_apart() -> None:
    work = {"name": "web", "namespace": "lab", "kind": "deployment", "pool": "p0", "image": "a:1"}
    pods = pod("web-0", owner=("StatefulSet", "web")), pod("web-1", owner=("Job", "web"))
    assert set(started(read(*pods))) == {"lab/web-statefulset", "lab/web-job"}
    assert set(started(read(pods[0], environment=env(workloads=[work])))) == {"lab/web-statefulset"}


def test_hashed_names_are_in_no_output_and_still_lead_to_the_node() -> None:
    selected = {"kubernetes.io/hostname": "gpu-1.lan"}
    pods = pod("secret-pod", nodeSelector=selected, namespace="secret-space"), pod("shown", namespace="team")
    declared = env(namespaces=[{"name": "team", "quota": {"p0": 1}}])
    now = read(*pods, environment=declared, hashed=True)
    text = json.dumps([now.nodes, now.pods.manifests, now.pods.notes, [work.name for work in now.pods.works]])
    for name in ("secret", "gpu-1", "gpu-2", "shown"):
        assert name not in text
    assert '"team"' in text, "as in the stack file"
    host = now.nodes[0]["metadata"]["labels"]["kubernetes.io/hostname"]
    (made,) = [item for key, item in started(now).items() if not key.startswith("team/")]
    assert made["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": host}
    again = read(*pods, environment=declared, hashed=True).nodes[0]
    assert host != again["metadata"]["labels"]["kubernetes.io/hostname"]


def test_other_kinds_of_clusters_keep_their_declared_nodes() -> None:
    declared = on("embedded", {"machine": "g4.p1.40g", "nodes": 1})
    now = running.read(declared, found(pod("a", resources=GPU)))
    assert now.nodes == ()
    assert set(started(now)) == {"lab/a"}


@pytest.mark.parametrize(
    ("cluster", "fact"),
    [
        (Found({NODE: (GPU_NODE,)}, lambda *_: None, (POD,)), "may not list pods"),
        (found(), "no pod runs there"),
        (found(pod("done", phase="Failed")), "no pod runs there"),
        (found({**pod("a"), "spec": {"nodeName": "gpu-1"}}), "no API server returns"),
        (found(pod("a"), nodes=({**GPU_NODE, "status": []},)), "no API server returns"),
    ],
)
def test_a_cluster_without_pods_is_refused(cluster: Found, fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        running.read(env(), cluster)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: v1\nkind: Config\nclusters: []\n", True),
        ('{\n  "kind": "Config",\n  "clusters": []\n}', True),
        ("apiVersion: v1\nkind: List\nitems:\n- kind: Node\n", False),
        ("kind: ConfigMap\n", False),
    ],
)
def test_a_kubeconfig_is_told_from_a_dump(tmp_path: Path, text: str, expected: bool) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    assert objects.is_kubeconfig(file) == expected
    assert not objects.is_kubeconfig(tmp_path)
