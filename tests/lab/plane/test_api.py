"""What the control plane supports: nodes, pods, controllers, tokens and permissions."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.waiting import until

pytestmark = pytest.mark.cluster

CONTAINERS = [{"name": "main", "image": "none"}]
TOLERATIONS = [{"operator": "Exists"}]


def node(name: str, group: str, **annotations: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "tests": group}
    shape = {f"simulator.gpuform.io/{key}": value for key, value in [("cpu", "28"), ("memory", "168Gi")]}
    metadata = {"name": name, "labels": labels, "annotations": shape | annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


@pytest.fixture
def namespace(kubectl):
    name = f"embedded-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    items = [node(f"{name}-{i}", name, **{"kwok.x-k8s.io/node": "fake"}) for i in range(2)]
    kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
    kubectl("delete", "node", "-l", f"tests={name}")


def ready(kubectl, name: str) -> str:
    path = '{.status.conditions[?(@.type=="Ready")].status}'
    return kubectl("get", "node", name, "-o", f"jsonpath={path}")


def test_only_nodes_with_the_annotation_are_played_by_kwok(namespace, kubectl):
    kubectl("create", "-f", "-", input=json.dumps(node(f"{namespace}-real", namespace)))
    until(lambda: [ready(kubectl, f"{namespace}-{i}") for i in range(2)], ["True", "True"].__eq__)
    leases = ["get", "lease", "-n", "kube-node-lease", "-o", "jsonpath={.items[*].metadata.name}"]
    until(lambda: set(kubectl(*leases).split()), {f"{namespace}-0", f"{namespace}-1"}.issubset)
    assert f"{namespace}-real" not in kubectl(*leases)
    assert ready(kubectl, f"{namespace}-real") != "True"


def test_a_deployment_a_daemon_set_and_a_job_run(namespace, kubectl):
    pod = {"containers": CONTAINERS, "tolerations": TOLERATIONS}
    select = {"selector": {"matchLabels": {"app": "x"}}}

    def workload(version: str, kind: str, **spec: Any) -> dict[str, Any]:
        template = {"metadata": {"labels": {"app": "x", "kind": kind}}, "spec": pod | spec.pop("pod", {})}
        metadata = {"name": kind.lower(), "namespace": namespace}
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": metadata,
            "spec": spec | {"template": template},
        }

    def sleeping(how: str) -> dict[str, Any]:
        containers = [{**CONTAINERS[0], "command": ["sleep", how]}]
        job = workload("batch/v1", "Job", pod={"restartPolicy": "Never", "containers": containers})
        return {**job, "metadata": {**job["metadata"], "name": f"sleep-{how}"}}

    items = [
        workload("apps/v1", "Deployment", replicas=3, **select),
        workload("apps/v1", "DaemonSet", **select, pod={"nodeSelector": {"tests": namespace}}),
        workload("batch/v1", "Job", pod={"restartPolicy": "Never"}),
        *(sleeping(how) for how in ("2", "inf")),
    ]
    kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def state() -> list[str]:
        asked = [
            ("deployment/deployment", ".readyReplicas"),
            ("daemonset/daemonset", ".numberReady"),
            ("job/job", ".succeeded"),
            ("job/sleep-2", ".succeeded"),
            ("job/sleep-inf", ".ready"),
        ]
        return [kubectl("get", what, "-n", namespace, "-o", f"jsonpath={{.status{p}}}") for what, p in asked]

    until(state, ["3", "2", "1", "1", "1"].__eq__)


def test_service_accounts_get_tokens_and_only_the_rights_they_are_given(namespace, kubectl):
    until(
        lambda: kubectl(
            "get", "serviceaccount", "default", "-n", namespace, "-o", "name", "--ignore-not-found"
        ),
        "serviceaccount/default\n".__eq__,
    )
    kubectl("create", "serviceaccount", "reader", "-n", namespace)
    token = kubectl("create", "token", "reader", "-n", namespace).strip()
    # An empty kubeconfig keeps kubectl from presenting the administrator's certificate beside the token.
    server = kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
    asks = ["--kubeconfig", "/dev/null", "--server", server, "--insecure-skip-tls-verify", "--token", token]
    who = kubectl(*asks, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert who == f"system:serviceaccount:{namespace}:reader"
    with pytest.raises(AssertionError, match='cannot list resource "secrets"'):
        kubectl(*asks, "get", "secrets", "-n", namespace)
    kubectl("create", "role", "read", "--verb=list", "--resource=secrets", "-n", namespace)
    kubectl(
        "create",
        "rolebinding",
        "read",
        "--role=read",
        f"--serviceaccount={namespace}:reader",
        "-n",
        namespace,
    )
    until(lambda: kubectl(*asks, "get", "secrets", "-n", namespace), "".__eq__)


def test_the_node_lifecycle_controller_opens_a_node_to_pods_once_it_is_there(namespace, kubectl):
    """The apiserver taints every new node; only that controller removes the taint."""
    name, taints = f"{namespace}-late", "jsonpath={.spec.taints[*].key}"
    late = json.dumps(node(name, namespace, **{"kwok.x-k8s.io/node": "fake"}))
    assert kubectl("create", "-f", "-", "-o", taints, input=late) == "node.kubernetes.io/not-ready"
    until(lambda: ready(kubectl, name), "True".__eq__)
    until(lambda: kubectl("get", "node", name, "-o", taints), "".__eq__)
