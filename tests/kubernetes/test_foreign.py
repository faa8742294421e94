"""What others have in a namespace, which pods a pool's nodes run, and what a pod waits for."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gpuform.checkout.listing import some
from gpuform.kubernetes.client import Client
from gpuform.kubernetes.foreign import foreign, running
from gpuform.kubernetes.pods import missing, worst
from tests.kubernetes.played import PlayedClient

pytestmark = pytest.mark.unit


OURS = {"app.kubernetes.io/managed-by": "gpuform", "gpuform.io/environment": "dev"}


def owned(plural: str, name: str, kind: str = "x") -> list[dict[str, Any]]:
    return [{"uid": f"{plural}/lab/{name}", "kind": kind, "apiVersion": "v1"}]


def helm(release: str) -> dict[str, Any]:
    return {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": release},
    }


def found(played: PlayedClient) -> list[str]:
    return asyncio.run(foreign(cast(Client, played), "lab", "dev", ("gpu-operator",)))


def test_what_the_stack_and_kubernetes_itself_make_is_not_foreign() -> None:
    played = PlayedClient()
    played.add("deployments", "web", labels=OURS)
    played.add("replicasets", "web-1", ownerReferences=owned("deployments", "web"))
    played.add("pods", "web-1-a", ownerReferences=owned("replicasets", "web-1"))
    played.add("deployments", "gpu-operator", **helm("gpu-operator"))
    played.add(
        "secrets", "sh.helm.release.v1.gpu-operator.v1", labels={"owner": "helm", "name": "gpu-operator"}
    )
    played.add("secrets", "gpu-operator-admission")
    for certificate in ("kedaorg-certs", "kserve-webhook-server-cert", "cert-manager-webhook-ca"):
        played.add("secrets", certificate)
    played.add("pods", "driver", ownerReferences=owned("clusterpolicies", "p", "ClusterPolicy"))
    played.add("configmaps", "kube-root-ca.crt")
    played.add("serviceaccounts", "default")
    played.add("secrets", "token", annotations={"kubernetes.io/service-account.name": "default"})
    played.add("events", "web-1-a.17")
    played.add("pods", "elsewhere", "others")
    assert found(played) == []


def test_everything_else_is_foreign_whatever_its_kind_and_claims_come_first() -> None:
    played = PlayedClient()
    played.add("notebooks", "ada")
    played.add("statefulsets", "ada", ownerReferences=owned("notebooks", "ada"))
    played.add("pods", "ada-0", ownerReferences=owned("statefulsets", "ada"))
    played.add("deployments", "web", labels={**OURS, "gpuform.io/environment": "another"})
    played.add("services", "chart", **helm("theirs"))
    played.add("secrets", "license")
    played.add("persistentvolumeclaims", "data", labels=OURS)
    expected = [
        "PersistentVolumeClaim data",
        "Deployment web",
        "Notebook ada",
        "Secret license",
        "Service chart",
    ]
    assert found(played) == expected


def test_a_kind_that_may_not_be_listed_is_said() -> None:
    played = PlayedClient()
    played.forbidden = ("secrets",)
    assert found(played) == ["Secrets, which cannot be listed (secrets is forbidden)"]


def test_a_namespace_that_is_gone_holds_nothing() -> None:
    assert asyncio.run(foreign(cast(Client, PlayedClient()), "gone", "dev", ())) == []


def test_pods_that_every_node_has_do_not_count_as_running() -> None:
    played = PlayedClient()
    played.node("a-0", "a")
    played.node("b-0", "b")
    played.pod("train", "a-0")
    played.pod("exporter", "a-0", ownerReferences=owned("daemonsets", "exporter", "DaemonSet"))
    played.pod("proxy", "a-0", ownerReferences=owned("nodes", "a-0", "Node"))
    played.pod("going", "a-0", deletionTimestamp="2026-01-02T03:04:05Z")
    played.pod("room", "a-0", namespace="gpuform-placeholder")
    played.pod("web", "c-0")
    assert asyncio.run(running(cast(Client, played), ["a", "b"])) == {"a": ["lab/train"], "b": []}


def test_long_lists_are_cut() -> None:
    assert some([f"p{number}" for number in range(8)]) == "p0, p1, p2, p3, p4 and 3 more"


def truth(type: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type, "status": status, **more}]}


UNPLACED = truth(
    "PodScheduled", "False", reason="Unschedulable", message="0/9 nodes are available: 9 taints."
)
BACKOFF = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Running", **truth("Ready")}, ""),
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
    assert missing(pod) == why
    assert worst([pod]) == (f"pod x is {why}" if why else "")
