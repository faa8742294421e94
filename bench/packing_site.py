"""The cluster of ``bench.packing``: nodes, pods, and whether each pod was bound, by one watch."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterable
from typing import Any

import httpx

from gpuform.checkout.paths import Paths
from infra.config import parse
from infra.plan import quotas, scheduler
from lab.plane.layout import Layout, Record
from lab.toolchain import Toolchain

Json = dict[str, Any]
_PODS = "/api/v1/namespaces/default/pods"
_GPU = "nvidia.com/gpu"


class PackingCluster:
    """One control plane with ``nodes`` nodes of ``gpus`` GPUs each; must be closed."""

    def __init__(self, paths: Paths, tools: Toolchain, nodes: int, gpus: int) -> None:
        layout = Layout(paths)
        tls = ssl.create_default_context(cafile=str(layout.pki / "ca.crt"))
        tls.load_cert_chain(layout.pki / "admin.crt", layout.pki / "admin.key")
        port = Record.load(layout).ports["kube-apiserver"]
        url = f"https://127.0.0.1:{port}"
        self._http = httpx.Client(base_url=url, verify=tls, timeout=30, trust_env=False)
        self._bound_by_name: dict[str, bool] = {}
        self._news, self._stopped = threading.Condition(), False
        self._nodes(nodes, gpus)
        self._apply_scheduler(gpus)
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        self._stopped = True
        self._http.close()

    @property
    def bound(self) -> int:
        with self._news:
            return sum(self._bound_by_name.values())

    def create(self, name: str, gpus: int, scheduler: str) -> None:
        limits = {"cpu": str(gpus), "memory": f"{4 * gpus}Gi", _GPU: str(gpus)}
        container = {"name": "work", "image": "none", "resources": {"limits": limits}}
        spec = {"schedulerName": scheduler, "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self._send("POST", _PODS, body)

    def placed(self, name: str) -> bool:
        """Whether the scheduler has bound the pod; waits for its decision."""
        with self._news:
            if not self._news.wait_for(lambda: name in self._bound_by_name, timeout=60):
                raise SystemExit(f"{name} was neither bound nor marked unschedulable within 60 s")
            return self._bound_by_name[name]

    def delete(self, name: str) -> None:
        self._send("DELETE", f"{_PODS}/{name}", {"gracePeriodSeconds": 0})
        with self._news:
            self._bound_by_name.pop(name, None)

    def clear(self) -> None:
        for pod in self._send("GET", _PODS)["items"]:
            self.delete(pod["metadata"]["name"])
        with self._news:
            self._bound_by_name.clear()

    def wait_for(self, schedulers: Iterable[str]) -> None:
        """Wait until each of them places a pod: it may not know the nodes yet."""
        for name in schedulers:
            for attempt in range(100):
                self.create(f"{name}-{attempt}", 1, name)
                if self.placed(f"{name}-{attempt}"):
                    break
                time.sleep(0.1)
            else:
                raise SystemExit(f"{name} finds no node in an empty cluster")
        self.clear()

    def _send(self, method: str, path: str, body: Any = None) -> Json:
        patch = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        answer = self._http.request(method, path, json=body, headers=patch)
        if answer.is_error and answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            raise SystemExit(f"{method} {path}: {answer.text[:300]}")
        document: Json = answer.json()
        return document

    def _nodes(self, nodes: int, gpus: int) -> None:
        """Register them as a kubelet does; allocatable is written once kwok has made them Ready."""
        for number in range(nodes):
            name = f"node-{number}"
            annotations = {"kwok.x-k8s.io/node": "fake"}
            metadata = {"name": name, "annotations": annotations, "labels": {"kubernetes.io/hostname": name}}
            self._send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        resources = {"cpu": str(12 * gpus), "memory": f"{60 * gpus}Gi", "pods": "110", _GPU: str(gpus)}
        for number in range(nodes):
            path = f"/api/v1/nodes/node-{number}"
            while not any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in self._send("GET", path).get("status", {}).get("conditions", ())
            ):
                time.sleep(0.05)
            self._send(
                "PATCH", f"{path}/status", {"status": {"allocatable": resources, "capacity": resources}}
            )

    def _apply_scheduler(self, gpus: int) -> None:
        machine = {4: "g4.p4.40g", 8: "p4d.24xlarge"}[gpus]
        env = parse(
            {
                "name": "bench",
                "cluster": {"kind": "embedded"},
                "pools": [{"name": "gpu", "machine": machine, "nodes": 1}],
                "scheduling": {"packer": True},
            }
        )
        paths = {
            "Namespace": "/api/v1/namespaces",
            "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
            "ConfigMap": "/api/v1/namespaces/{}/configmaps",
            **{
                kind: f"/apis/rbac.authorization.k8s.io/v1/{resource}"
                for kind, resource in (
                    ("ClusterRoleBinding", "clusterrolebindings"),
                    ("Role", "namespaces/{}/roles"),
                    ("RoleBinding", "namespaces/{}/rolebindings"),
                )
            },
        }
        namespaces = [
            manifest for manifest in quotas.namespaces(env) if manifest["metadata"]["name"] != "gpu-operator"
        ]
        for manifest in (*namespaces, *scheduler.manifests(env)):
            self._send(
                "POST", paths[manifest["kind"]].format(manifest["metadata"].get("namespace", "")), manifest
            )

    def _watch(self) -> None:
        while not self._stopped:
            try:
                with self._http.stream("GET", _PODS, params={"watch": "1"}, timeout=None) as stream:
                    for line in stream.iter_lines():
                        self._handle_event(json.loads(line))
            except (httpx.HTTPError, RuntimeError):
                time.sleep(0.1)

    def _handle_event(self, event: Json) -> None:
        if event["type"] not in ("ADDED", "MODIFIED"):
            return
        pod = event["object"]
        bound = bool(pod["spec"].get("nodeName"))
        is_unschedulable = any(
            condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
            for condition in pod.get("status", {}).get("conditions", ())
        )
        if bound or is_unschedulable:
            with self._news:
                self._bound_by_name[pod["metadata"]["name"]] = bound
                self._news.notify_all()
