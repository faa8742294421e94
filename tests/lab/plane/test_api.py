"""What the control plane supports: simulated nodes, Jobs, and the node lifecycle controller."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.waiting import until

pytestmark = pytest.mark.cluster


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


def test_a_job_ends_after_its_sleep_and_at_once_without_one(namespace, kubectl):
    def job(name: str, **container: Any) -> dict[str, Any]:
        containers = [{"name": "main", "image": "none", **container}]
        spec = {"containers": containers, "tolerations": [{"operator": "Exists"}], "restartPolicy": "Never"}
        metadata = {"name": name, "namespace": namespace}
        kind = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        return {**kind, "spec": {"template": {"spec": spec}}}

    items = [job("plain"), *(job(f"sleep-{how}", command=["sleep", how]) for how in ("2", "inf"))]
    kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def state() -> list[str]:
        requests = [("plain", "succeeded"), ("sleep-2", "succeeded"), ("sleep-inf", "ready")]
        where = ("-n", namespace, "-o")
        return [
            kubectl("get", "job", name, *where, f"jsonpath={{.status.{field}}}") for name, field in requests
        ]

    until(state, ["1", "1", "1"].__eq__)


def test_the_node_lifecycle_controller_opens_a_node_to_pods_once_it_is_there(namespace, kubectl):
    """The apiserver taints every new node; only that controller removes the taint."""
    name, taints = f"{namespace}-late", "jsonpath={.spec.taints[*].key}"
    late = json.dumps(node(name, namespace, **{"kwok.x-k8s.io/node": "fake"}))
    assert kubectl("create", "-f", "-", "-o", taints, input=late) == "node.kubernetes.io/not-ready"
    until(lambda: ready(kubectl, name), "True".__eq__)
    until(lambda: kubectl("get", "node", name, "-o", taints), "".__eq__)
