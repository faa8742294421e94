"""A control plane with nodes of Magnum's groups, and the pool keeper with its own account."""

from __future__ import annotations

import json
from typing import Any

from infra.config import parse
from infra.plan import pool_keeper, workloads
from infra.plan.sharing import NAMESPACE
from lab.rehearse.program import Keeper
from tests.conftest import Plane
from tests.waiting import until

ENV = parse(
    {
        "name": "research",
        "cluster": {"kind": "openstack", "template": "kubernetes-1.34", "version": "1.34"},
        "gpu_operator": {"mig_strategy": "mixed", "gpu_taint": "node-role.kubernetes.io/gpu"},
        "pools": [
            {
                "name": "gpu-t4",
                "machine": "g2.5xlarge",
                "elastic": {"min": 1, "max": {"nodes": 9}},
                "sharing": {"kind": "time_slicing", "replicas": 4},
                "labels": {"team": "a"},
                "taints": [{"key": "team", "value": "a"}],
            },
            {
                "name": "gpu-a100",
                "machine": "g4.p1.40g",
                "nodes": 1,
                "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
            },
        ],
    }
)
POOL = "gpuform.io/pool"
OWN = "gpuform.io/environment"
GROUP = "magnum.openstack.org/nodegroup"
OURS = {
    "gpuform.io/environment": "research",
    "gpuform.io/pool": "gpu-t4",
    "nvidia.com/device-plugin.config": "slice-4",
    "team": "a",
}
TAINTS = {
    "node-role.kubernetes.io/gpu": "true",
    "team": "a",
    "gpuform.io/gpu-not-ready": "",
}
Manifest = dict[str, Any]


class Site:
    """Nodes as Magnum's kubelets register them: with only the label of their group."""

    def __init__(self, plane: Plane, keeper: Keeper) -> None:
        self.plane, self.keeper, self.kubectl = plane, keeper, plane.kubectl

    def apply(self, *manifests: Manifest) -> None:
        self.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        )

    def install(self) -> None:
        self.apply(*workloads.namespaces(ENV))
        self.apply(*pool_keeper.manifests(ENV))

    def remove(self) -> None:
        for manifest in reversed(pool_keeper.manifests(ENV)):
            kind, own = manifest["kind"], manifest["metadata"]
            where = ("-n", own["namespace"]) if "namespace" in own else ()
            self.kubectl("delete", kind, own["name"], *where, "--ignore-not-found")
        self.kubectl("delete", "namespace", NAMESPACE, "--wait=true")

    def joins(
        self,
        *names: str,
        group: str = "gpu-t4",
        labels: dict[str, str] | None = None,
        notes: dict[str, str] | None = None,
        taints: list[Manifest] | None = None,
    ) -> None:
        """Register nodes as a kubelet does: create; existing nodes stay."""
        for name in names:
            own = {"name": name, "labels": {GROUP: group, "kubernetes.io/hostname": name, **(labels or {})}}
            own["annotations"] = {"kwok.x-k8s.io/node": "fake", **(notes or {})}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": own, "spec": {"taints": taints or []}}
            self.kubectl("create", "-f", "-", input=json.dumps(node))

    def node(self, name: str) -> Manifest:
        found: Manifest = json.loads(self.kubectl("get", "node", name, "-o", "json"))
        return found

    def labels(self, name: str) -> dict[str, str]:
        """Labels of ours and NVIDIA's, and the pool's own."""
        found = self.node(name)["metadata"]["labels"]
        return {key: value for key, value in found.items() if "kubernetes.io" not in key and key != GROUP}

    def taints(self, name: str) -> dict[str, str]:
        """Taints that Kubernetes' own controllers do not set."""
        found = self.node(name)["spec"].get("taints", [])
        return {one["key"]: one.get("value", "") for one in found if not one["key"].startswith("node.")}

    def in_pool(self, *names: str, pool: str = "gpu-t4", seconds: float = 10) -> None:
        for name in names:
            until(
                lambda name=name: self.labels(name), lambda has: has.get(POOL) == pool and OWN in has, seconds
            )

    def events(self, name: str) -> list[tuple[str, str]]:
        chosen = f"involvedObject.name={name},reportingComponent=pool-keeper"
        found = json.loads(self.kubectl("get", "events", "--field-selector", chosen, "-o", "json"))["items"]
        return [(one["reason"], one["message"]) for one in found]

    def clear(self) -> None:
        self.kubectl("delete", "nodes", "-l", GROUP, "--wait=true")
        self.kubectl("delete", "events", "-n", "default", "--all")
