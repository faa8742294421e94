"""What others have in a namespace, which pods a pool's nodes run, and what a pod waits for."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gpuform.checkout.listing import abbreviate
from gpuform.kubernetes.client import Client
from gpuform.kubernetes.foreign import foreign_objects, running_pods
from gpuform.kubernetes.pods import first_not_ready, not_ready_reason, sum_requests
from tests.fakes.client import OURS, FakeClient

pytestmark = pytest.mark.unit


def owned(plural: str, name: str, kind: str = "x") -> list[dict[str, Any]]:
    return [{"uid": f"{plural}/lab/{name}", "kind": kind, "apiVersion": "v1"}]


def helm(release: str) -> dict[str, Any]:
    return {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": release},
    }


def foreign_names(client: FakeClient) -> list[str]:
    return asyncio.run(foreign_objects(cast(Client, client), "lab", "dev", ("gpu-operator",)))


def test_what_the_stack_and_kubernetes_itself_make_is_not_foreign() -> None:
    client = FakeClient()
    client.add("deployments", "web", labels=OURS)
    client.add("replicasets", "web-1", ownerReferences=owned("deployments", "web"))
    client.add("pods", "web-1-a", ownerReferences=owned("replicasets", "web-1"))
    client.add("deployments", "gpu-operator", **helm("gpu-operator"))
    client.add(
        "secrets", "sh.helm.release.v1.gpu-operator.v1", labels={"owner": "helm", "name": "gpu-operator"}
    )
    client.add("secrets", "gpu-operator-admission")
    for certificate in ("kedaorg-certs", "kserve-webhook-server-cert", "cert-manager-webhook-ca"):
        client.add("secrets", certificate)
    client.add("pods", "driver", ownerReferences=owned("clusterpolicies", "p", "ClusterPolicy"))
    client.add("configmaps", "kube-root-ca.crt")
    client.add("serviceaccounts", "default")
    client.add("secrets", "token", annotations={"kubernetes.io/service-account.name": "default"})
    client.add("events", "web-1-a.17")
    client.add("pods", "elsewhere", "others")
    assert foreign_names(client) == []


def test_everything_else_is_foreign_whatever_its_kind_and_claims_come_first() -> None:
    client = FakeClient()
    client.add("notebooks", "ada")
    client.add("statefulsets", "ada", ownerReferences=owned("notebooks", "ada"))
    client.add("pods", "ada-0", ownerReferences=owned("statefulsets", "ada"))
    client.add("deployments", "web", labels={**OURS, "gpuform.io/environment": "another"})
    client.add("services", "chart", **helm("theirs"))
    client.add("secrets", "license")
    client.add("persistentvolumeclaims", "data", labels=OURS)
    expected = [
        "PersistentVolumeClaim data",
        "Deployment web",
        "Notebook ada",
        "Secret license",
        "Service chart",
    ]
    assert foreign_names(client) == expected


def test_a_kind_that_may_not_be_listed_is_said() -> None:
    client = FakeClient()
    client.forbidden = ("secrets",)
    assert foreign_names(client) == ["Secrets, which cannot be listed (secrets is forbidden)"]


def test_a_namespace_that_is_gone_holds_nothing() -> None:
    assert asyncio.run(foreign_objects(cast(Client, FakeClient()), "gone", "dev", ())) == []


def test_pods_that_every_node_has_do_not_count_as_running() -> None:
    client = FakeClient()
    client.node("a-0", "a")
    client.node("b-0", "b")
    client.pod("train", "a-0")
    client.pod("exporter", "a-0", ownerReferences=owned("daemonsets", "exporter", "DaemonSet"))
    client.pod("proxy", "a-0", ownerReferences=owned("nodes", "a-0", "Node"))
    client.pod("going", "a-0", deletionTimestamp="2026-01-02T03:04:05Z")
    client.pod("room", "a-0", namespace="gpuform-placeholder")
    client.pod("web", "c-0")
    assert asyncio.run(running_pods(cast(Client, client), ["a", "b"])) == {"a": ["lab/train"], "b": []}


def test_long_lists_are_cut() -> None:
    assert abbreviate([f"p{number}" for number in range(8)]) == "p0, p1, p2, p3, p4 and 3 more"


def condition(type: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type, "status": status, **more}]}


UNPLACED = condition(
    "PodScheduled", "False", reason="Unschedulable", message="0/9 nodes are available: 9 taints."
)
BACKOFF = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Running", **condition("Ready")}, ""),
        ({"phase": "Succeeded"}, ""),
        ({"phase": "Pending", **UNPLACED}, "Pending: Unschedulable: 0/9 nodes are available: 9 taints."),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": ENDED}],
                "containerStatuses": [{"name": "c", "state": BACKOFF}],
            },
            "Pending: container c: ImagePullBackOff: no such image",
        ),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"},
            "Failed: UnexpectedAdmissionError: no GPU",
        ),
        ({}, "Pending: not ready yet"),
    ],
)
def test_what_a_pod_waits_for(status: dict[str, Any], why: str) -> None:
    pod = {"metadata": {"name": "x"}, "status": status}
    assert not_ready_reason(pod) == why
    assert first_not_ready([pod]) == (f"pod x is {why}" if why else "")


@pytest.mark.parametrize(
    ("containers", "init", "total"),
    [
        ((2, 1), (), 3),
        ((2,), ((5, False), (1, False)), 5),
        ((2,), ((1, True), (3, True)), 6),
        ((2,), ((1, True), (4, False), (3, True)), 6),
        ((2,), ((1, True), (6, False), (1, True)), 7),
        ((2,), ((6, False), (1, True)), 6),
    ],
)
def test_a_pod_requests_what_runs_at_the_same_time(
    containers: tuple[int, ...], init: tuple[tuple[int, bool], ...], total: int
) -> None:
    spec = {
        "containers": [{"gpus": amount} for amount in containers],
        "initContainers": [
            {"gpus": amount, "restartPolicy": "Always"} if goes_on else {"gpus": amount}
            for amount, goes_on in init
        ],
    }
    assert sum_requests(spec, lambda container: {"gpu": container["gpus"]}) == {"gpu": total}
