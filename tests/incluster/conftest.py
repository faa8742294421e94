from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from infra.model.base.namespaces import TRIAL
from infra.plan import gpu_operator, quotas, readiness_gate, sharing
from infra.plan.sharing import NAMESPACE
from lab.rehearse.program import Gate
from tests.conftest import Plane
from tests.incluster.live_clusters import CHART, ENV, GateCluster


@pytest.fixture(scope="module")
def shared_cluster(simulated_plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateCluster]:
    folder = tmp_path_factory.mktemp("gate")
    cluster = GateCluster(simulated_plane, Gate(simulated_plane.kubeconfig, folder))
    system = {
        "metadata": {"name": "system-0", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}]},
    }
    system["metadata"]["labels"] = {"kubernetes.io/os": "linux"}
    shares = sharing.device_plugin_config_map(ENV)
    assert shares
    manifests = readiness_gate.manifests(ENV)
    cluster.apply({"apiVersion": "v1", "kind": "Node", **system}, *quotas.namespaces(ENV))
    cluster.apply(shares, *manifests)
    values = folder / "values.json"
    values.write_text(json.dumps(gpu_operator.values(ENV)))
    cluster.helm("install", "gpu-operator", str(CHART), "-n", NAMESPACE, "-f", str(values), "--wait")
    yield cluster
    cluster.clear()
    cluster.helm("uninstall", "gpu-operator", "-n", NAMESPACE, "--wait")
    items = {"apiVersion": "v1", "kind": "List", "items": manifests}
    cluster.kubectl("delete", "-f", "-", input=json.dumps(items))
    cluster.kubectl("delete", "node", "system-0")
    cluster.kubectl("delete", "namespace", NAMESPACE, TRIAL, "--wait=true")


@pytest.fixture
def cluster(shared_cluster: GateCluster) -> Iterator[GateCluster]:
    shared_cluster.gate.log.unlink(missing_ok=True)
    shared_cluster.gate.log.touch()
    yield shared_cluster
    shared_cluster.clear()
