from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from infra.model.checks import TRIAL
from infra.plan import gpu_operator, readiness_gate, room, sharing
from infra.plan.sharing import NAMESPACE
from lab.rehearse.program import Gate
from tests.conftest import Plane
from tests.incluster.sites import CHART, ENV, GateSite


@pytest.fixture(scope="module")
def planned(simulated_plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateSite]:
    folder = tmp_path_factory.mktemp("gate")
    site = GateSite(simulated_plane, Gate(simulated_plane.kubeconfig, folder))
    system = {
        "metadata": {"name": "system-0", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}]},
    }
    system["metadata"]["labels"] = {"kubernetes.io/os": "linux"}
    shares = sharing.device_plugin_config_map(ENV)
    assert shares
    own = readiness_gate.manifests(ENV)
    site.apply({"apiVersion": "v1", "kind": "Node", **system}, *room.namespaces(ENV))
    site.apply(shares, *own)
    values = folder / "values.json"
    values.write_text(json.dumps(gpu_operator.values(ENV)))
    site.helm("install", "gpu-operator", str(CHART), "-n", NAMESPACE, "-f", str(values), "--wait")
    yield site
    site.clear()
    site.helm("uninstall", "gpu-operator", "-n", NAMESPACE, "--wait")
    site.kubectl("delete", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": own}))
    site.kubectl("delete", "node", "system-0")
    site.kubectl("delete", "namespace", NAMESPACE, TRIAL, "--wait=true")


@pytest.fixture
def site(planned: GateSite) -> Iterator[GateSite]:
    planned.gate.log.unlink(missing_ok=True)
    planned.gate.log.touch()
    yield planned
    planned.clear()
