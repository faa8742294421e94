"""A control plane with the simulated operator for tests, used with plain kubectl and helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from infra.plan import nodes
from lab.simulator import keys
from tests.waiting import until

NAMESPACE = "gpu-operator"
CHART = Path(__file__).parents[3] / "charts" / "gpu-operator-sim"
# With the chart's default the toolkit ends the simulated nodes' containerd: test_container_engine.py.
TOOLKIT = {"env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]}


class Site:
    def __init__(self, plane: Any) -> None:
        self.plane = plane
        self.kubectl = plane.kubectl

    def helm(self, *args: str) -> None:
        command = [str(self.plane.toolchain.path("helm")), "--kubeconfig", str(self.plane.kubeconfig), *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    def operator(self, *options: str, **values: Any) -> None:
        """Install the simulated operator, or change its values."""
        file = self.plane.paths.state / "values.yaml"
        file.write_text(yaml.safe_dump({"toolkit": TOOLKIT, **values}))
        place = ["-n", NAMESPACE, "-f", str(file), *options]
        self.helm("upgrade", "--install", "gpu-operator", str(CHART), *place)

    def apply(self, *documents: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))

    def config_map(self, name: str, data: dict[str, str]) -> None:
        meta = {"name": name, "namespace": NAMESPACE}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    def node(self, name: str, gpu: str = "", count: int = 1, config: str = "") -> str:
        marks = {"kwok.x-k8s.io/node": "fake", "simulator.gpuform.io/cpu": "16"}
        spec: dict[str, Any] = {}
        if gpu:
            marks |= {keys.GPU_ID: f"10de:{gpu}", keys.GPU_COUNT: str(count)}
            marks[keys.CONTAINER_RUNTIME] = nodes.CONTAINER_RUNTIME
            spec["taints"] = [{"key": keys.GPU, "value": "true", "effect": "NoSchedule"}]
        labels = {"kubernetes.io/os": "linux"} | ({keys.PLUGIN_CONFIG: config} if config else {})
        meta = {"name": name, "annotations": marks, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec})
        return name

    def pod(self, name: str, limits: dict[str, int], node: str = "", memory: str = "") -> None:
        """A pod that requests GPUs; with ``node`` it is bound directly, without the scheduler.

        ``memory``: MiB of GPU memory that its process wants, or ``all``.
        """
        asks = {f"nvidia.com/{key}": count for key, count in limits.items()}
        container = {"name": "main", "image": "simulated.gpuform.io/main", "resources": {"limits": asks}}
        spec = {"containers": [container], "tolerations": [{"key": keys.GPU, "operator": "Exists"}]}
        spec |= {"terminationGracePeriodSeconds": 0} | ({"nodeName": node} if node else {})
        meta: dict[str, Any] = {"name": name, "namespace": "default"}
        if memory:
            meta["annotations"] = {keys.MEMORY: memory}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def get(self, kind: str, name: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-n", "default", "-o", "json"))
        return result

    def label(self, node: str, label: str, value: str) -> None:
        self.kubectl("label", "node", node, "--overwrite", f"{label}={value}")

    def labelled(self, node: str, label: str, value: str | None = None) -> dict[str, str]:
        """The node's labels, once ``label`` has this value (None: exists)."""
        result: dict[str, str] = self.until(
            lambda: self.get("node", node)["metadata"]["labels"],
            lambda labels: label in labels if value is None else labels.get(label) == value,
        )
        return result

    def allocatable(self, node: str) -> dict[str, int]:
        status = self.get("node", node)["status"]
        ours = {k: v for k, v in status.get("allocatable", {}).items() if k.startswith("nvidia.com/")}
        return {name.removeprefix("nvidia.com/"): int(count) for name, count in ours.items()}

    def offers(self, node: str, expected: dict[str, int]) -> None:
        self.until(lambda: self.allocatable(node), expected.__eq__)

    def operands(self, node: str, app: str) -> list[dict[str, Any]]:
        where = ["-n", NAMESPACE, "-l", f"app={app}", "--field-selector", f"spec.nodeName={node}"]
        result: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", *where, "-o", "json"))["items"]
        return result

    def phase(self, pod: str, expected: str) -> dict[str, Any]:
        result: dict[str, Any] = self.until(
            lambda: self.get("pod", pod), lambda p: p["status"].get("phase") == expected
        )
        return result

    def events(self, name: str, text: str, namespace: str = "default") -> None:
        where = ["-n", namespace, "--field-selector", f"involvedObject.name={name}", "-o", "json"]
        self.until(lambda: self.kubectl("get", "events", *where), lambda found: text in found)

    until = staticmethod(until)


@contextmanager
def opened(plane: Any) -> Iterator[Site]:
    """One CPU node and the operator's namespace; both are removed afterwards."""
    site = Site(plane)
    site.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    site.node("cpu-0")
    try:
        yield site
    finally:
        site.kubectl("delete", "pods", "--all", "-n", "default", "--wait=false")
        site.helm("uninstall", "gpu-operator", "-n", NAMESPACE, "--wait", "--ignore-not-found")
        # A pod that outlives its node is removed only by garbage collection, a minute later.
        site.kubectl("wait", "--for=delete", "pods", "--all", "-n", NAMESPACE, "--timeout=60s")
        site.kubectl("delete", "nodes", "--all", "--wait=false")
        site.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
