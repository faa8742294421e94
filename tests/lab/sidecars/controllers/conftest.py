"""A cluster of its own with Kueue's release and its users' objects, used with plain kubectl and helm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.offline import pinned_charts
from lab.plane.processes import scan
from lab.toolchain import Toolchain
from tests.lab.plane.conftest import OwnControlPlane, removed
from tests.lab.simulator.site import Site
from tests.waiting import until

Json = dict[str, Any]
NAMESPACE = "kueue-system"
API = "kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"


def manager(cluster: OwnControlPlane) -> set[int]:
    return {process.pid for process in scan(cluster.layout) if process.name == "kueue"}


class Queues(Site):
    def __init__(self, cluster: OwnControlPlane) -> None:
        super().__init__(cluster)
        self.cluster = cluster
        paths = cluster.paths
        self.chart = pinned_charts.controller_chart(
            "kueue", paths.root / pinned_charts.pin_folder("kueue"), paths.cache
        )

    def operator(self) -> None:
        """The simulated GPU operator, which makes nodes offer their GPUs."""
        folder = str(self.cluster.paths.root / "charts" / "gpu-operator-sim")
        values = ("--set", "toolkit.env[0].name=RUNTIME_CONFIG_SOURCE,toolkit.env[0].value=file")
        self.helm("install", "gpu-operator", folder, "-n", "gpu-operator", "--create-namespace", *values)

    def install(self, *values: str) -> None:
        """Install or upgrade the release; waits as Pulumi's Release does."""
        where = ("-n", NAMESPACE, "--create-namespace", "--wait", "--timeout", "90s")
        self.helm("upgrade", "--install", "kueue", str(self.chart), *where, *values)

    def remove(self) -> None:
        """Remove the release, without ``--wait``, which would not end.

        The controller manager's server-side apply creates two aggregated ClusterRoles again that helm deletes
        (clusterrole-aggregation-controller), and helm adopts no object of others at the next install.
        """
        self.helm("uninstall", "kueue", "-n", NAMESPACE)
        roles = ("kueue-batch-admin-role", "kueue-batch-user-role")
        self.kubectl("delete", "clusterroles", *roles, "--ignore-not-found")

    def node(self, name: str, gpu: str = "", count: int = 1, config: str = "") -> str:
        super().node(name, gpu, count, config)
        self.label(name, "kubernetes.io/hostname", name)
        return name

    def kueue(self, kind: str, name: str, spec: Json, namespace: str = "") -> None:
        meta = {"name": name} | ({"namespace": namespace} if namespace else {})
        self.apply({"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec})

    def queue(self, name: str, quota: Json) -> None:
        """A ClusterQueue with one flavor, and the namespace and LocalQueue of its team, both of that name."""
        resources = [{"name": key, "nominalQuota": count} for key, count in quota.items()]
        groups = [{"coveredResources": list(quota), "flavors": [{"name": "default", "resources": resources}]}]
        self.kueue("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.kueue("LocalQueue", name, {"clusterQueue": name}, namespace=name)

    def job(self, name: str, team: str, asks: Json) -> None:
        """A plain Job with a pod that runs for an hour."""
        container = {"name": "main", "image": "none", "resources": {"requests": asks, "limits": asks}}
        pod = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        notes = {"annotations": {"simulator.gpuform.io/duration": "1h"}}
        meta = {"name": name, "namespace": team, "labels": {"kueue.x-k8s.io/queue-name": team}}
        spec = {"backoffLimit": 100, "template": {"metadata": notes, "spec": pod}}
        self.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})

    def items(self, kind: str, namespace: str, *more: str) -> list[Json]:
        result: Json = json.loads(self.kubectl("get", kind, "-n", namespace, "-o", "json", *more))
        return list(result["items"])

    def running(self, job: str, team: str) -> list[str]:
        pods = self.items("pods", team, "-l", f"batch.kubernetes.io/job-name={job}")
        return [pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"]

    def runs(self, job: str, team: str, pods: int = 1, seconds: float = 40) -> None:
        why = lambda: self.why(job, team)  # noqa: E731
        until(lambda: self.running(job, team), lambda nodes: len(nodes) == pods, seconds, why)

    def workload(self, job: str, team: str) -> Json:
        owned = [
            item
            for item in self.items("workloads.kueue.x-k8s.io", team)
            if job in [owner["name"] for owner in item["metadata"]["ownerReferences"]]
        ]
        return {"status": {}, **(owned[0] if owned else {})}

    def condition(self, job: str, team: str, kind: str) -> Json:
        """The condition of the job's Workload; empty without it."""
        result = self.workload(job, team)["status"].get("conditions", [])
        return next((item for item in result if item["type"] == kind), {})

    def waits(self, job: str, team: str, good: Callable[[str], object]) -> Json:
        """Until the job waits with a message that is good; returns the Job."""
        output = lambda: str(self.condition(job, team, "QuotaReserved").get("message", ""))  # noqa: E731
        until(output, good, what=lambda: self.why(job, team))
        result: Json = json.loads(self.kubectl("get", "job", job, "-n", team, "-o", "json"))
        assert result["spec"]["suspend"], result
        assert self.running(job, team) == []
        return result

    def why(self, job: str, team: str) -> str:
        result = {"conditions": self.workload(job, team)["status"].get("conditions", [])}
        result["pods"] = [[item["metadata"]["name"], item["status"]] for item in self.items("pods", team)]
        return json.dumps(result)

    def log(self) -> str:
        log: Path = self.cluster.layout.log("kueue")
        return log.read_text() if log.is_file() else ""


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Queues]:
    """A cluster with one CPU node in which Kueue is declared, but not installed yet."""
    with removed(OwnControlPlane(tmp_path_factory.mktemp("queues"), toolchain)) as cluster:
        cluster.plane.start_with_controllers("kueue")
        site = Queues(cluster)
        site.node("cpu-0")
        yield site
