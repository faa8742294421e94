"""NVIDIA's talk on GPU services: updates without a spare GPU, GPUs by property (FACTS 1, 22-23)."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.provider.workloads.moves import Do, Rule, Side, next_move
from infra.config import parse
from infra.plan import queues, workloads

pytestmark = pytest.mark.unit

SERVICE: dict[str, Any] = {
    "name": "gpu-deployment",
    "kind": "deployment",
    "pool": "node",
    "count": 2,
    "replicas": 2,
    "image": "service:1",
    "service": {"port": 80, "ready_path": "/ready"},
    "update": {"kind": "blue_green"},
}


def made(*pools: dict[str, Any], **work: Any) -> list[dict[str, Any]]:
    cluster = {"kind": "embedded"}
    env = parse({"name": "e", "cluster": cluster, "pools": list(pools), "workloads": [{**SERVICE, **work}]})
    return list(workloads.manifests(env))


def test_nvidia_row_23_blue_green_with_no_spare_gpu() -> None:
    """Two pods of two GPUs each on four GPUs; tests/provider/workloads runs this on a cluster."""
    service, deployment = made({"name": "node", "machine": "g1.4xlarge", "nodes": 1})
    template = deployment["spec"]["template"]
    assert template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    first = next_move(Side(2, 2, 2), Side(), switched=False, rule=Rule(2, step=1, switch_at=1))
    assert (first.do, first.replicas) == (Do.SHRINK, 1), "room first, and only then a new pod"


def test_nvidia_row_23_slow_start_is_waited_for() -> None:
    _, deployment = made({"name": "node", "machine": "g1.4xlarge", "nodes": 1})
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"


def test_nvidia_row_22_minimum_memory_and_nvlink() -> None:
    pools = (
        {"name": "v100", "machine": "g1.4xlarge", "nodes": 1},
        {"name": "a100", "machine": "g4.p4.40g", "nodes": 1},
        {"name": "linked", "machine": "p4d.24xlarge", "nodes": 1},
    )
    needs = {"memory_gib": 40, "nvlink": True}
    work = {key: value for key, value in SERVICE.items() if key != "pool"}
    env = parse(
        {
            "name": "e",
            "cluster": {"kind": "embedded"},
            "pools": list(pools),
            "workloads": [{**work, "gpu": needs}],
        }
    )
    affinity = workloads.manifests(env)[-1]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "gpuform.io/pool", "operator": "In", "values": ["linked"]}]


def test_nvidia_row_23_user_queues_in_order() -> None:
    """One queue for each user, strictly in order; tests/checks has Kueue's own schemas and chart."""
    users = [
        {"name": user, "namespaces": [user], "cohort": "users", "quota": {"node": 2}, "order": "strict"}
        for user in ("ada", "grace")
    ]
    job = {"name": "run", "namespace": "ada", "kind": "job", "pool": "node", "count": 2, "image": "run:1"}
    env = parse(
        {
            "name": "e",
            "cluster": {"kind": "embedded"},
            "pools": [{"name": "node", "machine": "g1.4xlarge", "nodes": 1}],
            "queues": {"teams": users},
            "workloads": [{**job, "queue": "ada"}],
        }
    )
    found = {(one["kind"], one["metadata"]["name"]): one for one in queues.manifests(env)}
    for user in ("ada", "grace"):
        spec = found["ClusterQueue", user]["spec"]
        assert (spec["queueingStrategy"], spec["cohortName"]) == ("StrictFIFO", "users")
        assert found["LocalQueue", user]["metadata"]["namespace"] == user
    (made,) = workloads.manifests(env)
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "ada"


def test_nvidia_row_23_scaling_on_requests_and_not_on_gpu_load() -> None:
    """Beside the data pod if it can be; tests/policies refuses what scales on GPU load."""
    data = {"name": "data", "kind": "pod", "image": "data:1"}
    served = {key: value for key, value in SERVICE.items() if key not in ("replicas", "update")}
    served |= {"kind": "inference", "near": "data", "scale": {"max": 2, "qps_per_replica": 50}}
    env = parse(
        {
            "name": "e",
            "cluster": {"kind": "embedded"},
            "monitoring": {},
            "pools": [{"name": "node", "machine": "g1.4xlarge", "nodes": 1}],
            "workloads": [data, served],
        }
    )
    found = {one["kind"]: one for one in workloads.manifests(env)}
    (trigger,) = found["ScaledObject"]["spec"]["triggers"]
    assert trigger["metadata"]["query"].startswith("sum(rate(nv_inference_request_success{")
    assert trigger["metadata"]["threshold"] == "50"
    affinity = found["Deployment"]["spec"]["template"]["spec"]["affinity"]["podAffinity"]
    first = affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
    assert first["topologyKey"] == "kubernetes.io/hostname"
    assert first["labelSelector"]["matchLabels"] == {"app.kubernetes.io/name": "data"}
