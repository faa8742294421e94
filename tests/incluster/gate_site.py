"""A control plane with the simulated operator, and what the gate reads: nodes, pods, operands."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from infra.config import parse
from infra.model.pool import Pool
from infra.plan import karpenter, node_groups, nodes, sharing, workloads
from infra.plan.sharing import NAMESPACE
from lab.rehearse.program import Gate
from lab.simulator import keys
from tests.conftest import Plane
from tests.plan.aws_environments import CLAIMED, SLICED, aws
from tests.waiting import until

ENV = aws(
    {**SLICED, "taints": [{"key": "team", "value": "a"}]},
    {"machine": "g4dn.xlarge", "nodes": 1},
    {**CLAIMED, "machine": "g4dn.xlarge"},
)
POOL, FIXED, BY_CLAIM = ENV.pools
TAINT = "gpuform.io/gpu-not-ready"
READY = "gpuform.io/gpu-ready"
WAITS_FOR = "gpuform.io/gpu-waits-for"
DRIVER = "595.91.07"
VALIDATOR = "nvidia-operator-validator"
CHART = Path(__file__).parents[2] / "charts" / "gpu-operator-sim"
Manifest = dict[str, Any]


class Site:
    def __init__(self, plane: Plane, gate: Gate) -> None:
        self.plane = plane
        self.kubectl = plane.kubectl
        self.gate = gate

    def helm(self, *args: str) -> None:
        command = [str(self.plane.toolchain.path("helm")), "--kubeconfig", str(self.plane.kubeconfig), *args]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def apply(self, *manifests: Manifest) -> None:
        self.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        )

    def node(self, name: str, gpus: int = 1, labels: dict[str, str] | None = None, of: Pool = POOL) -> None:
        """A node as Karpenter makes it from the pool's NodePool."""
        (pool,) = karpenter.node_pools(ENV, of)
        template = pool["spec"]["template"]
        hardware = {"kwok.x-k8s.io/node": "fake", keys.GPU_ID: "10de:1eb8", keys.GPU_COUNT: str(gpus)}
        hardware |= {keys.HOST_DRIVER: DRIVER, keys.CONTAINER_RUNTIME: nodes.CONTAINER_RUNTIME}
        metadata = {
            "name": name,
            "labels": {
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name,
                keys.PCI_PRESENT: "true",  # else the operator removes its labels until discovery has run
                **template["metadata"]["labels"],
                **(labels or {}),
            },
            "annotations": {**template["metadata"]["annotations"], **hardware},
        }
        spec = {"taints": [*template["spec"]["taints"], *template["spec"]["startupTaints"]]}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})

    def fixed(self, name: str, runtime: str) -> None:
        """A node as a managed group makes it: with the group's taints, and without a promise."""
        hardware = {"kwok.x-k8s.io/node": "fake", keys.GPU_ID: "10de:1eb8", keys.GPU_COUNT: "1"}
        hardware |= {keys.HOST_DRIVER: DRIVER, keys.CONTAINER_RUNTIME: runtime}
        own = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, keys.PCI_PRESENT: "true"}
        metadata = {
            "name": name,
            "labels": {**own, **sharing.pool_labels(ENV, FIXED)},
            "annotations": hardware,
        }
        effects = {eks: effect for effect, eks in node_groups.TAINT_EFFECTS.items()}
        taints = [{**one, "effect": effects[one["effect"]]} for one in node_groups.taints(ENV, FIXED)]
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}})

    def pod(self, name: str, node: str) -> None:
        """A pod of the pool for one share, as planned for a workload, with a node selector for one node."""
        declared = {"name": name, "kind": "pod", "pool": POOL.name, "image": "x:1"}
        (manifest,) = workloads.manifests(parse({**ENV.resolved(), "workloads": [declared]}))
        manifest["spec"]["nodeSelector"]["kubernetes.io/hostname"] = node
        self.apply(manifest)

    def get(self, kind: str, name: str, namespace: str = "default") -> Manifest:
        found: Manifest = json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
        return found

    def taints(self, node: str) -> list[str]:
        return [taint["key"] for taint in self.get("node", node)["spec"].get("taints", [])]

    def note(self, node: str, key: str = WAITS_FOR) -> str:
        """The gate's annotation on the node; by default what it waits for."""
        return str(self.get("node", node)["metadata"]["annotations"].get(key, ""))

    def phase(self, pod: str) -> str:
        phase: str = self.get("pod", pod)["status"]["phase"]
        return phase

    def operand(self, app: str, node: str) -> list[Manifest]:
        where = ("-n", NAMESPACE, "-l", f"app={app}", "--field-selector", f"spec.nodeName={node}")
        found: list[Manifest] = json.loads(self.kubectl("get", "pods", *where, "-o", "json"))["items"]
        return found

    def ready(self, app: str, node: str) -> bool:
        return any(
            one["type"] == "Ready" and one["status"] == "True"
            for pod in self.operand(app, node)
            for one in pod["status"].get("conditions", [])
        )

    def waits(self, node: str, pod: str, why: str, looks: int = 8) -> None:
        """The gate has logged why, and continues; node and pod stay as they are."""
        until(self.gate.log.read_text, lambda text: f"{node} waits" in text and why in text)
        for _ in range(looks):
            assert TAINT in self.taints(node)
            assert READY not in self.get("node", node)["metadata"]["annotations"]
            assert self.phase(pod) == "Pending"
            time.sleep(0.2)

    def lets_in(self, node: str, pod: str) -> dict[str, Any]:
        """The evidence of a node that is admitted, and on which the pod then runs."""
        until(lambda: self.taints(node), lambda taints: TAINT not in taints)
        until(lambda: self.phase(pod), "Running".__eq__)
        evidence: dict[str, Any] = json.loads(self.get("node", node)["metadata"]["annotations"][READY])
        return evidence

    def acted(self, node: str) -> None:
        offered = sharing.offered(ENV, POOL)["nvidia.com/gpu.shared"]
        until(
            lambda: self.get("node", node).get("status", {}).get("allocatable", {}),
            lambda there: there.get("nvidia.com/gpu.shared") == str(offered),
        )
        until(lambda: self.ready(VALIDATOR, node), bool)

    def clear(self) -> None:
        self.kubectl("delete", "pods", "--all", "-n", "default", "--wait=true")
        names = self.kubectl("get", "nodes", "-l", "gpuform.io/pool", "-o", "name").split()
        self.kubectl("delete", "nodes", "-l", "gpuform.io/pool", "--wait=true")
        for name in names:  # no other component removes the pods of a deleted node in time
            where = ("-n", NAMESPACE, "--field-selector", f"spec.nodeName={name.removeprefix('node/')}")
            self.kubectl("delete", "pods", *where, "--force", "--grace-period=0")
