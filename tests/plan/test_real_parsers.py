"""What was planned, read by the programs that it is for: NVIDIA's own parsers, Helm and the API server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from gpuform.toolchain import Toolchain
from infra.config import load, parse
from infra.model.environment import Environment
from infra.plan import gpu_operator, nodes, sharing, workloads

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
LOCAL = load(ROOT / "Pulumi.local.yaml")


class Kubectl(Protocol):
    def __call__(self, *args: str, input: str | None = None) -> str: ...


def every_kind_of_sharing() -> Environment:
    """The local stack, and what it has no pool for."""
    mapping = LOCAL.resolved()
    some = {"devices": [1], "share": {"replicas": 2}}
    t4 = {"machine": "g2.5xlarge", "nodes": 1}
    wide = {"kind": "mig", "layout": "all-1g.10gb"}
    media = {"kind": "mig", "layout": "all-1g.5gb+me"}
    mapping["pools"] += [
        {"name": "keep", **t4, "sharing": {"kind": "time_slicing", "replicas": 2, "rename": False}},
        {"name": "wide", "machine": "g4.p1.40g", "nodes": 1, "sharing": wide},
        {"name": "big", "machine": "p4de.24xlarge", "nodes": 1, "sharing": wide},
        {"name": "me", "machine": "g4.p1.40g", "nodes": 1, "sharing": media},
        {"name": "some", "machine": "g4.p4.40g", "nodes": 1, "sharing": {**media, **some}},
        {"name": "single", "machine": "g4.p1.40g", "nodes": 1, "sharing": {**media, "strategy": "single"}},
        {"name": "mps", **t4, "sharing": {"kind": "mps", "replicas": 4}},
    ]  # fmt: skip
    return parse(mapping)


def check(toolchain: Toolchain, kind: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    command = [str(toolchain.path("nvidia-config")), "check", kind, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_nvidias_device_plugin_types_keep_every_key(toolchain: Toolchain, tmp_path: Path) -> None:
    config_map = sharing.device_plugin_config_map(every_kind_of_sharing())
    assert config_map is not None
    assert len(config_map["data"]) == 7
    for text in config_map["data"].values():
        found = check(toolchain, "device-plugin", text, tmp_path)
        assert found.returncode == 0, found.stdout + found.stderr
    misspelled = config_map["data"]["slice-4"].replace("renameByDefault", "renameByDefualt")
    assert check(toolchain, "device-plugin", misspelled, tmp_path).returncode == 1


def test_nvidias_mig_parted_types_keep_every_key(toolchain: Toolchain, tmp_path: Path) -> None:
    config_map = sharing.mig_parted_config_map(every_kind_of_sharing())
    assert config_map is not None
    found = check(toolchain, "mig-parted", config_map["data"]["config.yaml"], tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "device-filter" in config_map["data"]["config.yaml"]
    assert "- 1\n" in config_map["data"]["config.yaml"]


def test_helm_takes_the_values(toolchain: Toolchain, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(gpu_operator.values(LOCAL)), encoding="utf-8")
    release = gpu_operator.release(LOCAL)
    command = [str(toolchain.path("helm")), "template", release.name, str(ROOT / release.chart)]
    command += ["-n", release.namespace, "-f", str(values)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    kinds = [item["kind"] for item in yaml.safe_load_all(found.stdout) if item]
    assert "DaemonSet" in kinds


def test_the_api_server_takes_every_manifest_without_a_warning(kubectl: Kubectl) -> None:
    """Admission of the restricted level included: it warns of a Deployment's pods and refuses a bare Pod."""
    namespaces = yaml.safe_dump_all(workloads.namespaces(LOCAL))
    kubectl("apply", "--server-side", "-f", "-", input=namespaces)
    try:
        manifests: list[dict[str, Any]] = [*workloads.manifests(LOCAL)]
        manifests += [node for pool in LOCAL.pools for node in nodes.simulated_nodes(LOCAL, pool)]
        maps = (sharing.device_plugin_config_map(LOCAL), sharing.mig_parted_config_map(LOCAL))
        manifests += [item for item in maps if item]
        text = yaml.safe_dump_all(manifests)
        dry = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors")
        found = kubectl(*dry, "-f", "-", input=text)
        assert len(found.splitlines()) == len(manifests)
    finally:
        kubectl("delete", "--wait=false", "-f", "-", input=namespaces)
