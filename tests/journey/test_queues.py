"""Queues and scaled workloads as a user has them: made, changed, removed with what runs, and made again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gpuform.kubernetes.client import Client
from gpuform.kubernetes.foreign import queued_workloads as queued_by_others
from gpuform.kubernetes.kubeconfig import resolve
from gpuform.usage.prometheus import connect
from infra.config import load
from lab.plane.layout import prometheus_port
from tests.journey.conftest import Checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

TEAMS = [
    {"name": "science", "namespaces": ["science"], "cohort": "lab", "quota": {"t4": 2, "whole": 2}},
    {"name": "arts", "namespaces": ["arts"], "cohort": "lab", "quota": {"t4": 2}, "borrow": {"t4": 0}},
]
SMALL = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SAFE = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
UNCHANGED = " unchanged in "


def work(name: str, namespace: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "image": "a:1", "command": ["sleep", "inf"], **more}


FREE = work("free", "science", kind="pod")  # keeps the namespace when the queues go
QUEUED = [
    work("fits", "science", kind="job", queue="science", pool="t4", parallelism=3),
    work("waits", "arts", kind="job", queue="arts", pool="t4", parallelism=2),
]


def plain(environment: dict[str, Any]) -> None:
    pools = [
        {
            "name": "t4",
            "machine": "g2.5xlarge",
            "nodes": 1,
            "sharing": {"kind": "time_slicing", "replicas": 4},
        },
        {"name": "whole", "machine": "g4.p4.40g", "nodes": 1},
        {"name": "cpu", "machine": "m6i.xlarge", "nodes": 2},
    ]
    environment.update(pools=pools, workloads=[FREE], monitoring={"dashboards": False})
    environment.pop("queues", None)


def queued(environment: dict[str, Any], **more: Any) -> None:
    plain(environment)
    environment.update(queues={"teams": TEAMS, **more}, workloads=[FREE, *QUEUED])


def theirs(checkout: Checkout, name: str, kind: str, gpus: int) -> None:
    """A pod or job of others in the queue of `science`, for whole GPUs."""
    resources = {"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}}
    container = {"name": "main", "image": "none", "securityContext": SMALL, "resources": resources}
    spec = {
        "containers": [container],
        "securityContext": SAFE,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    labels = {"kueue.x-k8s.io/queue-name": "science"}
    one: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    if kind == "job":
        template = {"metadata": {"annotations": {"simulator.gpuform.io/duration": "1h"}}}
        template["spec"] = {**spec, "restartPolicy": "Never"}
        one = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}
    file = checkout.paths.root / f"{name}.json"
    file.write_text(json.dumps({**one, "metadata": {"name": name, "namespace": "science", "labels": labels}}))
    checkout.kubectl("apply", "-f", str(file))


def live(checkout: Checkout, *namespaces: str) -> dict[str, str]:
    """Uid by name of each pod that runs in the namespaces, by default those of the teams."""
    items = json.loads(checkout.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    return {
        one["metadata"]["name"]: one["metadata"]["uid"]
        for one in items
        if one["metadata"]["namespace"] in (namespaces or ("science", "arts"))
        and one["status"].get("phase") == "Running"
    }


def queues(checkout: Checkout) -> dict[str, Any]:
    return {one["name"]: one for one in checkout.status()["queues"]}


def measured(checkout: Checkout, query: str) -> list[float]:
    """What the stack's own Prometheus answers."""
    env = load(checkout.paths.root / "Pulumi.local.yaml")
    with connect(env, checkout.paths, checkout.paths.kubeconfig, None, prometheus_port) as found:
        return [one.value for one in found.query(query)]


def waiting(checkout: Checkout, team: str) -> dict[str, str]:
    return {one["name"]: one["reason"] for one in queues(checkout)[team]["waiting"]}


async def of_others(checkout: Checkout) -> dict[str, list[str]]:
    client = Client(resolve({"kubeconfig": str(checkout.paths.kubeconfig)}))
    try:
        return await queued_by_others(client, "local")
    finally:
        await client.close()


def of_kueue(checkout: Checkout) -> list[str]:
    kinds = "crds,clusterroles,clusterrolebindings,namespaces,apiservices,validatingwebhookconfigurations"
    return [one for one in checkout.kubectl("get", kinds, "-o", "name").split() if "kueue" in one]


def test_queues_are_made_changed_removed_and_made_again(fresh: Checkout) -> None:
    fresh.change(lambda environment: (queued(environment), environment["workloads"].pop()))
    fresh.gpuform("local", "up")
    until(lambda: live(fresh), lambda found: sum("fits" in name for name in found) == 3)
    fresh.change(queued)
    fresh.gpuform("local", "up")
    until(lambda: waiting(fresh, "arts"), lambda found: "insufficient unused quota" in found.get("waits", ""))
    (used,) = [one for one in queues(fresh)["science"]["usage"] if one["pool"] == "t4"]
    assert (used["quota"], used["used"], used["borrowed"]) == (2, 3, 1)
    until(
        lambda: measured(fresh, 'kueue_pending_workloads{cluster_queue="arts"}'), lambda found: 1.0 in found
    )
    shown = fresh.gpuform("status").stdout
    assert "Job arts/waits" in shown
    fresh.gpuform("report")
    assert "<h2>Queues</h2>" in (fresh.paths.state / "report" / "index.html").read_text()

    assert UNCHANGED in fresh.gpuform("local", "up").stdout

    # An upgrade of the release with live objects: what runs goes on, what waits keeps its place.
    before = live(fresh)
    fresh.change(lambda environment: queued(environment, fair_sharing=True))
    assert "1 updated" in fresh.gpuform("local", "up").stdout
    assert live(fresh) == before
    assert set(waiting(fresh, "arts")) == {"waits"}

    # Removal: the stack's own work ends, that of others goes on or stays as it is.
    theirs(fresh, "runs", "pod", 1)
    theirs(fresh, "works", "job", 1)
    theirs(fresh, "held", "job", 1)
    until(lambda: live(fresh), lambda found: "runs" in found and any("works" in name for name in found))
    until(lambda: waiting(fresh, "science"), lambda found: "held" in found)
    held = ["Job science/held (waits)", "Job science/works", "Pod science/runs"]
    assert asyncio.run(of_others(fresh)) == {"science": held}, "what the guard finds on other clusters"
    others = {name: uid for name, uid in live(fresh).items() if name == "runs" or "works" in name}
    fresh.change(plain)
    fresh.gpuform("local", "up")
    assert others.items() <= live(fresh).items()
    assert json.loads(fresh.kubectl("get", "job", "held", "-n", "science", "-o", "json"))["spec"]["suspend"]
    assert of_kueue(fresh) == []
    assert "Queues" not in fresh.gpuform("status").stdout

    # Again: nothing that was left behind is in the way, and a pod that runs is not stopped.
    fresh.change(queued)
    fresh.gpuform("local", "up")
    until(lambda: queues(fresh)["science"]["admitted"], lambda count: count >= 2)
    assert live(fresh)["runs"] == others["runs"]

    message = fresh.gpuform("destroy", "local", "--yes").stdout
    assert "but in its queues; without Kueue, what waits stays suspended:\n  science: Job science/" in message
    assert not fresh.running(), "the control plane goes with its stack"


def serving(environment: dict[str, Any], pods: int = 0, image: str = "a:1") -> None:
    """Scaled to ``pods`` by what the stack's own Prometheus answers; 0: three pods, without scale."""
    work: dict[str, Any] = {"name": "web", "namespace": "lab", "kind": "inference", "image": image}
    work["metrics"] = {}  # so that pods with and without a query are the same
    scale = {"max": 6, "qps_per_replica": 100, "cooldown_seconds": 1, "query": f"vector({pods * 100})"}
    environment.update(
        pools=[{"name": "cpu", "machine": "m6i.4xlarge", "nodes": 1}],
        workloads=[work | ({"scale": scale} if pods else {"replicas": 3})],
        monitoring={"dashboards": False, "interval": "5s"},
    )


def test_pods_outlive_what_scales_them(fresh: Checkout) -> None:
    fresh.change(serving)
    fresh.gpuform("local", "up")
    first = until(lambda: live(fresh, "lab"), lambda found: len(found) == 3)
    fresh.change(lambda environment: serving(environment, 4))
    fresh.gpuform("local", "up")
    found = until(lambda: live(fresh, "lab"), lambda found: len(found) == 4, seconds=120)
    assert first.items() <= found.items(), "the first scale starts again from one pod"
    assert " unchanged in " in fresh.gpuform("local", "up").stdout
    fresh.change(lambda environment: serving(environment, 4, image="a:2"))
    fresh.gpuform("local", "up")
    found = until(lambda: live(fresh, "lab"), lambda found: len(found) == 4)
    assert fresh.gpuform("drift", "local").stdout == "local: no drift\n"
    # All of it goes at once: KEDA's finalizer on the ScaledObject is taken off before KEDA ends.
    fresh.change(lambda environment: (serving(environment, image="a:2"), environment.pop("monitoring")))
    fresh.gpuform("local", "up")
    left = until(lambda: live(fresh, "lab"), lambda found: len(found) == 3)
    assert left.items() <= found.items()
    assert "keda" not in fresh.kubectl("get", "crds,namespaces,apiservices", "-o", "name")
    assert "keda-operator" not in fresh.kubectl("get", "deployments", "-A", "-o", "name")
    fresh.gpuform("destroy", "local", "--yes")
