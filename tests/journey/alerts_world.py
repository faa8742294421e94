"""The cluster in which every alert is provoked: its stack, and functions that break and repair it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import yaml

from gpuform.checkout.paths import Paths
from infra.config import load
from infra.model.labels import GPU_UNHEALTHY
from infra.plan.rules import alerts
from infra.plan.rules.alerts import Alert
from lab.plane.layout import Layout, Record
from lab.simulator import keys
from lab.toolchain import Toolchain
from tests.journey.alert_objects import WORK
from tests.journey.conftest import Checkout
from tests.waiting import until

Json = dict[str, Any]
ENVIRONMENT: Json = {
    "name": "local",
    "cluster": {"kind": "embedded"},
    "monitoring": {"interval": "5s"},
    "health": {"mode": "cordon", "budget": "10%"},
    "gpu_operator": {"mig_strategy": "mixed"},
    "pools": [
        {"name": "whole", "machine": "p4d.24xlarge", "nodes": 6},
        {
            "name": "slices",
            "machine": "g4.p1.40g",
            "nodes": 4,
            "sharing": {"kind": "mig", "layout": "all-1g.5gb"},
        },
        {
            "name": "shares",
            "machine": "g2.5xlarge",
            "nodes": 2,
            "sharing": {"kind": "time_slicing", "replicas": 4},
        },
        {"name": "parts", "machine": "g4dn.xlarge", "nodes": 1, "sharing": {"kind": "mps", "replicas": 2}},
        {"name": "cpu", "machine": "m6i.xlarge", "nodes": 2},
    ],
    "workloads": [],
}
UNTIL_S = 240
POLL_S = 0.5
_NAMES = "jsonpath={.items[*].metadata.name}"
_DECLARED = ("nvidia.com/device-plugin.config", "nvidia.com/mig.config")
_LEARNT = (keys.FAULTS, keys.MIG_LAYOUT, keys.MIG_DONE, "kubectl.kubernetes.io/last-applied-configuration")


@dataclass(frozen=True)
class Firing:
    found: dict[str, list[dict[str, str]]]

    def has(self, name: str, labels: Mapping[str, str]) -> bool:
        return any(labels.items() <= one.items() for one in self.found.get(name, ()))


class World:
    """A checkout with the stack up and a real Prometheus."""

    def __init__(self, checkout: Checkout) -> None:
        """``checkout`` has run ``local up``."""
        self.checkout = checkout
        self._labels: dict[str, tuple[str, str]] = {}
        self.kept: dict[str, Json] = {}
        """Deleted objects, to be restored."""
        self._kubectl = str(Toolchain(checkout.paths).path("kubectl"))
        port = Record.load(Layout(checkout.paths)).ports["prometheus"]
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20)

    def close(self) -> None:
        self._http.close()

    def kubectl(self, *args: str, input: str | None = None) -> str:
        command = [self._kubectl, "--kubeconfig", str(self.checkout.paths.kubeconfig), *args]
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout

    def apply(self, *documents: Json) -> None:
        self.kubectl("apply", "-f", "-", input="---\n".join(map(yaml.safe_dump, documents)))

    def delete(self, kind: str, *names: str, namespace: str = WORK) -> None:
        self.kubectl(
            "delete", kind, *names, "-n", namespace, "--ignore-not-found", "--grace-period=0", "--force"
        )

    def nodes(self) -> list[str]:
        return self.kubectl("get", "nodes", "-l", "nvidia.com/gpu.present=true", "-o", _NAMES).split()

    def relabel(self, node: str, label: str) -> None:
        """Set a label of a node, and remember its old value."""
        key = label.partition("=")[0]
        self._labels[node] = (key, self._node(node)["metadata"]["labels"].get(key, ""))
        self.kubectl("label", "node", node, label, "--overwrite")

    def restore(self, node: str) -> None:
        key, value = self._labels.pop(node)
        self.kubectl("label", "node", node, f"{key}={value}", "--overwrite")

    def annotate(self, node: str, *words: str) -> None:
        self.kubectl("annotate", "node", node, *words, "--overwrite")

    def taint(self, node: str) -> str | None:
        """The class of the fault for which the health loop has tainted a node."""
        taints = self._node(node)["spec"].get("taints", [])
        return next((one["value"] for one in taints if one["key"] == GPU_UNHEALTHY), None)

    def take(self, kind: str, name: str, namespace: str) -> None:
        """Delete an object, and keep it to be restored."""
        found: Json = json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
        kept = {key: found["metadata"][key] for key in ("name", "namespace", "labels")}
        self.kept[name] = {**{key: found[key] for key in ("apiVersion", "kind", "spec")}, "metadata": kept}
        self.kubectl("delete", kind, name, "-n", namespace)

    def may_patch(self, role: str, allowed: bool) -> None:
        """Remove the patch permission from a ClusterRole, or restore it."""
        if allowed:
            self.apply(self.kept.pop(role))
            return
        found: Json = json.loads(self.kubectl("get", "clusterrole", role, "-o", "json"))
        found["metadata"] = {key: found["metadata"][key] for key in ("name", "labels")}
        self.kept[role] = found
        self.apply({**found, "rules": [rule for rule in found["rules"] if "patch" not in rule["verbs"]]})

    def soon(self, done: Callable[[], Any], seconds: float = 40) -> None:
        """Wait for a condition that a test asserts later."""
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def exchange(self, name: str) -> None:
        """Another machine of the same name: delete the node and its pods, then recreate the node."""
        node = self._node(name)
        meta = node["metadata"]
        ours = {
            key: text for key, text in meta["labels"].items() if "nvidia.com/" not in key or key in _DECLARED
        }
        declared = {key: text for key, text in meta["annotations"].items() if key not in _LEARNT}
        self.kubectl("delete", "node", name)
        kept = {"name": name, "labels": ours, "annotations": declared}
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": kept,
                "spec": {"taints": node["spec"].get("taints", [])},
            }
        )

    def operand(self, name: str, node: str) -> str:
        words = ("-n", "gpu-operator", "--field-selector", f"spec.nodeName={node}", "-o", _NAMES)
        return next(one for one in self.kubectl("get", "pods", *words).split() if one.startswith(name))

    def hold(self, name: str, node: str, held: bool) -> None:
        """Keep an operand's pod from being deleted, by a finalizer; or release it."""
        patch = {"metadata": {"finalizers": ["gpuform.io/test"] if held else None}}
        words = ("-n", "gpu-operator", "--type=merge", "-p", json.dumps(patch))
        self.kubectl("patch", "pod", self.operand(name, node), *words)

    def _node(self, name: str) -> Json:
        found: Json = json.loads(self.kubectl("get", "node", name, "-o", "json"))
        return found

    def fault(self, node: str, *words: str) -> None:
        self.checkout.gpuform("simulate", "fault", node, *words)

    def query(self, expression: str) -> list[Json]:
        answer = self._http.get("/api/v1/query", params={"query": expression}).raise_for_status().json()
        return list(answer["data"]["result"])

    def firing(self) -> Firing:
        found: dict[str, list[dict[str, str]]] = {}
        for one in self._http.get("/api/v1/alerts").raise_for_status().json()["data"]["alerts"]:
            found.setdefault(one["labels"]["alertname"], []).append(one["labels"])
        return Firing(found)

    def rules(self) -> list[Json]:
        groups = self._http.get("/api/v1/rules").raise_for_status().json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def declared(self) -> tuple[Alert, ...]:
        return alerts.every(load(self.checkout.paths.root / "Pulumi.local.yaml"))

    def until(self, said: str, done: Callable[[], Any], seconds: float = UNTIL_S) -> Any:
        return until(done, seconds=seconds, what=said)


def declare(paths: Paths) -> None:
    content = {"config": {"gpuform:environment": ENVIRONMENT}}
    (paths.root / "Pulumi.local.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
