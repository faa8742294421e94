"""Control planes with nodes, for the programs in pods: what each needs and reads there."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from infra.config import parse
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.plan import karpenter, node_groups, nodes, pool_keeper, quotas, sharing, workloads
from infra.plan.sharing import NAMESPACE
from lab.rehearse.program import Gate, Keeper
from lab.simulator import keys
from tests.build.aws_environments import CLAIMED, SLICED, aws
from tests.conftest import Plane
from tests.waiting import until

Manifest = dict[str, Any]


class LiveCluster:
    """A plane's objects; ``options`` are those of `kubectl apply`."""

    options: tuple[str, ...] = ()

    def __init__(self, plane: Plane) -> None:
        self.plane, self.kubectl = plane, plane.kubectl

    def apply(self, *manifests: Manifest) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", *self.options, "-f", "-", input=json.dumps(items))

    def get(self, kind: str, name: str, namespace: str = "default") -> Manifest:
        item: Manifest = json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
        return item

    def node(self, name: str) -> Manifest:
        return self.get("node", name)

    def event_texts(self, name: str, component: str, namespace: str = "default") -> list[tuple[str, str]]:
        """Reason and message of the component's events on that object."""
        selector = f"involvedObject.name={name},reportingComponent={component}"
        events = self.kubectl("get", "events", "-n", namespace, "--field-selector", selector, "-o", "json")
        return [(event["reason"], event["message"]) for event in json.loads(events)["items"]]

    def list_rights(self, account: str, namespace: str) -> list[str]:
        """What the service account may do in the namespace, without what everybody may."""
        output = self.kubectl(
            "auth", "can-i", "--list", f"--as=system:serviceaccount:{account}", "-n", namespace
        )
        rows = [" ".join(line.split()) for line in output.splitlines()[1:]]
        return sorted(row for row in rows if not row.startswith(("self", "[/", "clustertrust")))

    def require_restricted(self, deployment: str, namespace: str = NAMESPACE) -> None:
        """A namespace of the strictest level would take the Deployment's pod."""
        spec = self.get("deployment", deployment, namespace)["spec"]["template"]["spec"]
        name = f"strict-{deployment}"
        level = {"pod-security.kubernetes.io/enforce": "restricted"}
        account = {"name": deployment, "namespace": name}
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": level}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        )
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": account, "spec": spec}
        try:
            self.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")


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


class GateCluster(LiveCluster):
    """With the simulated operator, and what the gate reads: nodes, pods, operands."""

    def __init__(self, plane: Plane, gate: Gate) -> None:
        super().__init__(plane)
        self.gate = gate

    def helm(self, *args: str) -> None:
        command = [str(self.plane.toolchain.path("helm")), "--kubeconfig", str(self.plane.kubeconfig), *args]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr

    def add_elastic(self, name: str, annotations: dict[str, str] | None = None, pool: Pool = POOL) -> None:
        """A node as Karpenter makes it from the pool's NodePool."""
        (node_pool,) = karpenter.node_pools(ENV, pool)
        meta, spec = (node_pool["spec"]["template"][part] for part in ("metadata", "spec"))
        notes = {**meta["annotations"], **(annotations or {})}
        self._add(name, meta["labels"], notes, [*spec["taints"], *spec["startupTaints"]])

    def add_fixed(self, name: str, runtime: str) -> None:
        """A node as a managed group makes it: with the group's taints, and without a promise."""
        effects = {eks: effect for effect, eks in node_groups.TAINT_EFFECTS.items()}
        taints = [{**taint, "effect": effects[taint["effect"]]} for taint in node_groups.taints(ENV, FIXED)]
        self._add(name, sharing.pool_labels(ENV, FIXED), {keys.CONTAINER_RUNTIME: runtime}, taints)

    def _add(
        self, name: str, labels: dict[str, str], annotations: dict[str, str], taints: list[Manifest]
    ) -> None:
        """A node with a T4; with the label of its PCI device, or the operator takes the others off it."""
        hardware = {"kwok.x-k8s.io/node": "fake", keys.GPU_ID: "10de:1eb8", keys.GPU_COUNT: "1"}
        hardware |= {keys.HOST_DRIVER: DRIVER, keys.CONTAINER_RUNTIME: nodes.CONTAINER_RUNTIME}
        own = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, keys.PCI_PRESENT: "true"}
        metadata = {"name": name, "labels": {**own, **labels}, "annotations": {**hardware, **annotations}}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}})

    def pod(self, name: str, node: str) -> None:
        """A pod of the pool for one share, as planned for a workload, with a node selector for one node."""
        declared = {"name": name, "kind": "pod", "pool": POOL.name, "image": "x:1"}
        (manifest,) = workloads.manifests(parse({**ENV.resolved(), "workloads": [declared]}))
        manifest["spec"]["nodeSelector"]["kubernetes.io/hostname"] = node
        self.apply(manifest)

    def taints(self, node: str) -> list[str]:
        return [taint["key"] for taint in self.node(node)["spec"].get("taints", [])]

    def annotation(self, node: str, key: str = WAITS_FOR) -> str:
        """The gate's annotation on the node; by default what it waits for."""
        return str(self.node(node)["metadata"]["annotations"].get(key, ""))

    def phase(self, pod: str) -> str:
        phase: str = self.get("pod", pod)["status"]["phase"]
        return phase

    def operand_pods(self, app: str, node: str) -> list[Manifest]:
        selection = ("-n", NAMESPACE, "-l", f"app={app}", "--field-selector", f"spec.nodeName={node}")
        pods: list[Manifest] = json.loads(self.kubectl("get", "pods", *selection, "-o", "json"))["items"]
        return pods

    def is_ready(self, app: str, node: str) -> bool:
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for pod in self.operand_pods(app, node)
            for condition in pod["status"].get("conditions", [])
        )

    def require_waiting(self, node: str, pod: str, reason: str, checks: int = 8) -> None:
        """The gate has logged why, and continues; node and pod stay as they are."""
        until(self.gate.log.read_text, lambda text: f"{node} waits" in text and reason in text)
        for _ in range(checks):
            assert TAINT in self.taints(node)
            assert READY not in self.node(node)["metadata"]["annotations"]
            assert self.phase(pod) == "Pending"
            time.sleep(0.2)

    def wait_until_admitted(self, node: str, pod: str) -> dict[str, Any]:
        """The evidence of a node that is admitted, and on which the pod then runs."""
        until(lambda: self.taints(node), lambda taints: TAINT not in taints)
        until(lambda: self.phase(pod), "Running".__eq__)
        evidence: dict[str, Any] = json.loads(self.node(node)["metadata"]["annotations"][READY])
        return evidence

    def wait_for_operands(self, node: str) -> None:
        offered = allocatable.resources(POOL)["nvidia.com/gpu.shared"]
        until(
            lambda: self.node(node).get("status", {}).get("allocatable", {}),
            lambda amounts: amounts.get("nvidia.com/gpu.shared") == str(offered),
        )
        until(lambda: self.is_ready(VALIDATOR, node), bool)

    def clear(self) -> None:
        self.kubectl("delete", "pods", "--all", "-n", "default", "--wait=true")
        names = self.kubectl("get", "nodes", "-l", "gpuform.io/pool", "-o", "name").split()
        self.kubectl("delete", "nodes", "-l", "gpuform.io/pool", "--wait=true")
        for name in names:  # no other component removes the pods of a deleted node in time
            selection = ("-n", NAMESPACE, "--field-selector", f"spec.nodeName={name.removeprefix('node/')}")
            self.kubectl("delete", "pods", *selection, "--force", "--grace-period=0")


RESEARCH = parse(
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
POOL_LABEL = "gpuform.io/pool"
ENVIRONMENT_LABEL = "gpuform.io/environment"
GROUP = "magnum.openstack.org/nodegroup"
POOL_LABELS = {
    "gpuform.io/environment": "research",
    "gpuform.io/pool": "gpu-t4",
    "nvidia.com/device-plugin.config": "slice-4",
    "team": "a",
}
POOL_TAINTS = {"node-role.kubernetes.io/gpu": "true", "team": "a", "gpuform.io/gpu-not-ready": ""}


class KeeperCluster(LiveCluster):
    """Nodes as Magnum's kubelets register them: with only the label of their group."""

    def __init__(self, plane: Plane, keeper: Keeper) -> None:
        super().__init__(plane)
        self.keeper = keeper

    def install(self) -> None:
        self.apply(*quotas.namespaces(RESEARCH))
        self.apply(*pool_keeper.manifests(RESEARCH))

    def remove(self) -> None:
        for manifest in reversed(pool_keeper.manifests(RESEARCH)):
            kind, metadata = manifest["kind"], manifest["metadata"]
            options = ("-n", metadata["namespace"]) if "namespace" in metadata else ()
            self.kubectl("delete", kind, metadata["name"], *options, "--ignore-not-found")
        self.kubectl("delete", "namespace", NAMESPACE, "--wait=true")

    def add_nodes(
        self,
        *names: str,
        group: str = "gpu-t4",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        taints: list[Manifest] | None = None,
    ) -> None:
        """Register nodes as a kubelet does: create; existing nodes stay."""
        for name in names:
            meta = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake", **(annotations or {})}}
            meta["labels"] = {GROUP: group, "kubernetes.io/hostname": name, **(labels or {})}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": taints or []}}
            self.kubectl("create", "-f", "-", input=json.dumps(node))

    def labels(self, name: str) -> dict[str, str]:
        """Labels of ours and NVIDIA's, and the pool's own."""
        labels = self.node(name)["metadata"]["labels"]
        return {key: value for key, value in labels.items() if "kubernetes.io" not in key and key != GROUP}

    def taints(self, name: str) -> dict[str, str]:
        """Taints that Kubernetes' own controllers do not set."""
        taints = self.node(name)["spec"].get("taints", [])
        return {item["key"]: item.get("value", "") for item in taints if not item["key"].startswith("node.")}

    def wait_until_in_pool(self, *names: str, pool: str = "gpu-t4", seconds: float = 10) -> None:
        for name in names:
            until(
                lambda name=name: self.labels(name),
                lambda labels: labels.get(POOL_LABEL) == pool and ENVIRONMENT_LABEL in labels,
                seconds,
            )

    def events(self, name: str) -> list[tuple[str, str]]:
        return self.event_texts(name, "pool-keeper")

    def clear(self) -> None:
        self.kubectl("delete", "nodes", "-l", GROUP, "--wait=true")
        self.kubectl("delete", "events", "-n", "default", "--all")
