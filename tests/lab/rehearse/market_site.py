"""A cluster where the real Karpenter buys nodes from the played AWS, without the Pulumi engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from infra.model.environment import Environment
from infra.plan import eks, gpu_operator, karpenter, quotas, readiness_gate, sharing
from lab.offline import pinned_charts
from lab.rehearse.cloud.market import LaunchedInstance
from lab.rehearse.cloud.server import Cloud
from tests.conftest import Plane
from tests.waiting import until

Manifest = dict[str, Any]
Found = TypeVar("Found")
CHART = Path(__file__).parents[3] / "charts" / "gpu-operator-sim"
READY = "gpuform.io/gpu-ready"
SYSTEM_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "system-0",
        "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"kubernetes.io/os": "linux"},
    },
    "spec": {"taints": [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}]},
}


def pool(name: str, **given: Any) -> dict[str, Any]:
    """An elastic pool with its own taint, since Karpenter could otherwise buy from either of two pools."""
    limit = {"max": {"cpu": 192}}  # 48 nodes of the smallest type
    return {"name": name, "elastic": limit, "taints": [{"key": "for", "value": name}], **given}


class KarpenterCluster:
    """The platform of one environment, applied by hand; pools are added one by one."""

    def __init__(self, plane: Plane, env: Environment, cloud: Cloud) -> None:
        self.plane, self.env, self.cloud = plane, env, cloud
        self.kubectl = plane.kubectl

    def apply(self, *manifests: Manifest) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(listed))

    def install_platform(self, folder: Path) -> None:
        """Install the operator, its configuration, the gate, and Karpenter's CRDs and settings."""
        here = Path(__file__).parents[3]
        crds = pinned_charts.crds_chart(here / pinned_charts.FOLDER, self.plane.paths.cache)
        self._helm("install", "karpenter-crd", str(crds), "-n", "kube-system")
        meta = {"name": "karpenter-values", "namespace": "kube-system"}
        values = {"values": json.dumps(eks.karpenter_values(self.env))}
        sliced = (sharing.device_plugin_config_map(self.env), sharing.mig_parted_config_map(self.env))
        self.apply(
            SYSTEM_NODE,
            *quotas.namespaces(self.env),
            *filter(None, sliced),
            *readiness_gate.manifests(self.env),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": values},
        )
        file = folder / "values.json"
        file.write_text(json.dumps(gpu_operator.values(self.env)))
        self._helm("install", "gpu-operator", str(CHART), "-n", sharing.NAMESPACE, "-f", str(file), "--wait")

    def _helm(self, *args: str) -> None:
        command = [str(self.plane.toolchain.path("helm")), "--kubeconfig", str(self.plane.kubeconfig), *args]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def sell(self, name: str, with_overlays: bool = True) -> None:
        """Apply a pool's Karpenter objects as planned, and wait until they are ready."""
        pool = self.env.pool(name)
        self.apply(
            *(karpenter.node_overlays(self.env, pool) if with_overlays else ()),
            karpenter.ec2_node_class(self.env, pool, karpenter.node_role(self.env), self.env.name),
            *karpenter.node_pools(self.env, pool),
        )
        for node_pool in pool.node_pools:
            self.until(
                lambda name=node_pool: self._ready("nodepool", name), f"NodePool {node_pool} to be ready"
            )

    def _ready(self, kind: str, name: str) -> bool:
        conditions = self.get(kind, name).get("status", {}).get("conditions", [])
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def get(self, *what: str) -> Manifest:
        result: Manifest = json.loads(self.kubectl("get", *what, "-o", "json"))
        return result

    def run(self, name: str, replicas: int, pool: str | None = None, **resources: str) -> None:
        requests = {"cpu": "10m", "memory": "16Mi", **resources}
        container = {"name": "work", "image": "x:1", "resources": {"requests": requests, "limits": resources}}
        tolerated = [{"key": key, "operator": "Exists"} for key in ("nvidia.com/gpu", "for")]
        spec = {
            "nodeSelector": {"gpuform.io/pool": pool} if pool else {},
            "tolerations": [{**taint, "effect": "NoSchedule"} for taint in tolerated],
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": spec}
        works = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        meta = {"name": name, "namespace": "default"}
        self.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": works})

    def pods(self, name: str) -> list[Manifest]:
        result: list[Manifest] = self.get("pods", "-n", "default", "-l", f"app={name}")["items"]
        return [pod for pod in result if "deletionTimestamp" not in pod["metadata"]]

    def running(self, name: str, count: int, seconds: float = 300) -> list[Manifest]:
        def all_run() -> list[Manifest]:
            pods = [pod for pod in self.pods(name) if pod["status"].get("phase") == "Running"]
            return pods if len(pods) == count else []

        return self.until(all_run, f"{count} pods of {name} to run", seconds)

    def bought(self, pool: str) -> tuple[LaunchedInstance, ...]:
        return tuple(instance for instance in self.cloud.market.instances() if instance.pool == pool)

    def late(self, pods: Sequence[Manifest]) -> list[str]:
        """Pods that were bound before the gate admitted their node, or without that."""
        ready: dict[str, datetime] = {}
        for node in self.get("nodes")["items"]:
            if note := node["metadata"].get("annotations", {}).get(READY):
                ready[node["metadata"]["name"]] = datetime.fromisoformat(json.loads(note)["at"])
        never = datetime.max.replace(tzinfo=UTC)
        late = [pod for pod in pods if _bound(pod) < ready.get(pod["spec"]["nodeName"], never)]
        return [pod["metadata"]["name"] for pod in late]

    def until(self, look: Callable[[], Found], what: str, seconds: float = 60) -> Found:
        return until(look, seconds=seconds, what=lambda: f"{what}: {self.cloud.trouble}")


def _bound(pod: Manifest) -> datetime:
    times = {item["type"]: item["lastTransitionTime"] for item in pod["status"]["conditions"]}
    return datetime.fromisoformat(times["PodScheduled"])
