"""Targets as Prometheus's own discovery finds them, for one without API access."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.sidecars.monitoring.discovery import Found, Lookup

pytestmark = pytest.mark.unit

Json = dict[str, Any]
META = "__meta_kubernetes_"
POD: Json = {
    "metadata": {
        "name": "exporter-x",
        "namespace": "gpu-operator",
        "uid": "u1",
        "labels": {"app": "nvidia-dcgm-exporter", "simulator.gpuform.io/operand": "dcgm-exporter"},
        "annotations": {"a/b": "c"},
        "ownerReferences": [{"kind": "DaemonSet", "name": "exporter", "controller": True}],
    },
    "spec": {
        "nodeName": "t4-0",
        "containers": [
            {"name": "init-like", "image": "i"},
            {"name": "main", "image": "m", "ports": [{"name": "metrics", "containerPort": 9400}]},
        ],
    },
    "status": {
        "podIP": "10.0.0.7",
        "hostIP": "10.0.0.1",
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
SERVICE: Json = {
    "metadata": {
        "name": "exporter",
        "namespace": "gpu-operator",
        "uid": "s1",
        "labels": {"app": "nvidia-dcgm-exporter"},
    },
    "spec": {"selector": {"app": "nvidia-dcgm-exporter"}},
}
REFERENCE = {"kind": "Pod", "name": "exporter-x", "namespace": "gpu-operator"}
ENDPOINTS: Json = {
    "metadata": {"name": "exporter", "namespace": "gpu-operator", "uid": "e1"},
    "subsets": [
        {
            "addresses": [{"ip": "10.0.0.7", "nodeName": "t4-0", "targetRef": REFERENCE}],
            "notReadyAddresses": [{"ip": "10.0.0.8"}],
            "ports": [{"name": "gpu-metrics", "port": 9400, "protocol": "TCP"}],
        }
    ],
}
SLICE: Json = {
    "metadata": {
        "name": "exporter-abc",
        "namespace": "gpu-operator",
        "uid": "l1",
        "labels": {"kubernetes.io/service-name": "exporter"},
    },
    "ports": [{"name": "gpu-metrics", "port": 9400, "protocol": "TCP"}],
    "endpoints": [
        {
            "addresses": ["10.0.0.7"],
            "nodeName": "t4-0",
            "conditions": {"ready": True},
            "targetRef": REFERENCE,
        },
        {"addresses": ["fd00::8"], "conditions": {"ready": False}},
    ],
}
OF_POD = {
    f"{META}pod_name": "exporter-x",
    f"{META}pod_uid": "u1",
    f"{META}pod_ip": "10.0.0.7",
    f"{META}pod_host_ip": "10.0.0.1",
    f"{META}pod_node_name": "t4-0",
    f"{META}pod_phase": "Running",
    f"{META}pod_ready": "true",
    f"{META}pod_controller_kind": "DaemonSet",
    f"{META}pod_controller_name": "exporter",
    f"{META}pod_label_app": "nvidia-dcgm-exporter",
    f"{META}pod_labelpresent_app": "true",
    f"{META}pod_label_simulator_gpuform_io_operand": "dcgm-exporter",
    f"{META}pod_labelpresent_simulator_gpuform_io_operand": "true",
    f"{META}pod_annotation_a_b": "c",
    f"{META}pod_annotationpresent_a_b": "true",
    f"{META}pod_container_init": "false",
    f"{META}pod_container_name": "main",
    f"{META}pod_container_image": "m",
    f"{META}pod_container_port_name": "metrics",
    f"{META}pod_container_port_number": "9400",
    f"{META}pod_container_port_protocol": "TCP",
}
OF_SERVICE = {
    f"{META}namespace": "gpu-operator",
    f"{META}service_name": "exporter",
    f"{META}service_label_app": "nvidia-dcgm-exporter",
    f"{META}service_labelpresent_app": "true",
}


class Cluster:
    def __init__(self) -> None:
        here = "/namespaces/gpu-operator"
        self.lists: dict[str, tuple[Json, ...]] = {
            f"/api/v1{here}/endpoints": (ENDPOINTS,),
            f"/apis/discovery.k8s.io/v1{here}/endpointslices": (SLICE,),
            f"/api/v1{here}/services": (SERVICE,),
            f"/api/v1{here}/pods": (POD,),
        }
        self.asked: list[str] = []

    def items(self, path: str) -> tuple[Json, ...]:
        return self.lists[path]

    def read(self, path: str) -> list[Json]:
        self.asked.append(path)
        return [POD]

    def found(self, role: str, selector: Json | None = None) -> list[Json]:
        lookup = Lookup(role, ("gpu-operator",), json.dumps(selector or {}))
        made: list[Json] = json.loads(Found(lookup).look(self.items, self.read))
        return made


def test_endpoints() -> None:
    ready, other = Cluster().found("endpoints")
    assert ready["targets"] == ["10.0.0.7:9400"]
    common = OF_SERVICE | {
        f"{META}endpoints_name": "exporter",
        f"{META}endpoint_port_name": "gpu-metrics",
        f"{META}endpoint_port_protocol": "TCP",
    }
    assert ready["labels"] == common | OF_POD | {
        f"{META}endpoint_ready": "true",
        f"{META}endpoint_node_name": "t4-0",
        f"{META}endpoint_address_target_kind": "Pod",
        f"{META}endpoint_address_target_name": "exporter-x",
    }
    assert other == {"targets": ["10.0.0.8:9400"], "labels": common | {f"{META}endpoint_ready": "false"}}


def test_slices() -> None:
    ready, other = Cluster().found("endpointslice")
    assert ready["targets"] == ["10.0.0.7:9400"]
    common = OF_SERVICE | {
        f"{META}endpointslice_name": "exporter-abc",
        f"{META}endpointslice_label_kubernetes_io_service_name": "exporter",
        f"{META}endpointslice_labelpresent_kubernetes_io_service_name": "true",
        f"{META}endpointslice_port_name": "gpu-metrics",
        f"{META}endpointslice_port_protocol": "TCP",
    }
    assert ready["labels"] == common | OF_POD | {
        f"{META}endpointslice_endpoint_conditions_ready": "true",
        f"{META}endpointslice_endpoint_node_name": "t4-0",
        f"{META}endpointslice_address_target_kind": "Pod",
        f"{META}endpointslice_address_target_name": "exporter-x",
    }
    assert other["targets"] == ["[fd00::8]:9400"]


def test_pods() -> None:
    (found,) = Cluster().found("pod")
    assert found == {
        "targets": ["10.0.0.7:9400"],
        "labels": {f"{META}namespace": "gpu-operator", **OF_POD},
    }


def test_only_services_that_are_selected_and_nothing_of_an_unknown_role() -> None:
    cluster = Cluster()
    assert cluster.found("endpoints", {"matchLabels": {"app": "other"}}) == []
    assert cluster.asked == []
    assert cluster.found("node") == []


def test_it_is_read_anew_when_something_has_changed_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("lab.sidecars.monitoring.discovery.time.monotonic", lambda: now)
    cluster, found = Cluster(), Found(Lookup("endpoints", ("gpu-operator",)))
    for _ in range(3):
        found.look(cluster.items, cluster.read)
    assert len(cluster.asked) == 1
    cluster.lists["/api/v1/namespaces/gpu-operator/endpoints"] = ()
    assert json.loads(found.look(cluster.items, cluster.read)) == []
    now += 31
    found.look(cluster.items, cluster.read)
    assert len(cluster.asked) == 3
