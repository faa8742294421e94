"""The example program of components, with the real engine on the embedded cluster with simulated nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from tests.conftest import Plane
from tests.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.cluster]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "components"
SIZE = {
    "kwok.x-k8s.io/node": "fake",
    "simulator.gpuform.io/cpu": "8",
    "simulator.gpuform.io/memory": "32Gi",
    "simulator.gpuform.io/pods": "110",
}
GPU = {
    "simulator.gpuform.io/gpu": "10de:1eb8",
    "simulator.gpuform.io/gpu-count": "1",
    "simulator.gpuform.io/container-runtime": "containerd://2.3.4",
}


def node(name: str, labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    default = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    metadata = {"name": name, "labels": {**default, **labels}, "annotations": {**SIZE, **annotations}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


NODES = (node("example-t4", {"gpu": "t4"}, GPU), node("example-cpu", {}, {}))


def test_five_components_without_an_environment(simulated_plane: Plane, tmp_path: Path) -> None:
    project = yaml.safe_load((EXAMPLE / "Pulumi.yaml").read_text())
    (plugin,) = project["plugins"]["providers"]
    plugin["path"] = str(EXAMPLE / plugin["path"])
    # The interpreter of this session, not one of a virtual environment.
    settings = {**project, "main": str(EXAMPLE), "runtime": "python"}
    (tmp_path / "Pulumi.yaml").write_text(json.dumps(settings))
    config = {"config": {"gpu-components:kubeconfig": str(simulated_plane.kubeconfig)}}
    (tmp_path / "Pulumi.local.yaml").write_text(json.dumps(config))
    paths = Paths(tmp_path, tmp_path / ".gpuform", simulated_plane.paths.cache)
    engine = Engine(paths, simulated_plane.toolchain, say=lambda line: None)
    simulated_plane.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, NODES)))

    def get_live(*arguments: str) -> Any:
        return json.loads(simulated_plane.kubectl("get", *arguments, "-o", "json"))

    try:
        result = engine.up()
        node_ = get_live("node", "example-t4")
        assert node_["metadata"]["labels"]["nvidia.com/device-plugin.config"] == "four"
        assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in node_["spec"][
            "taints"
        ]
        assert node_["status"]["allocatable"]["nvidia.com/gpu.shared"] == "4"
        pods = get_live("pods", "-n", "inference")["items"]
        assert {pod["spec"]["nodeName"] for pod in pods} == {"example-t4"}
        assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 4
        assert engine.outputs()["asks"] == {"nvidia.com/gpu.shared": "1"}
        assert engine.up().changes == {"same": result.changes["create"]}
    finally:
        engine.destroy()
        simulated_plane.kubectl("delete", "node", "example-t4", "example-cpu")
    until(lambda: "inference" not in simulated_plane.kubectl("get", "namespaces"))
