"""The program under mocks: its resources and their shape, and that no resource hides behind an Output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.components.recording import Recorder, record

ROOT = Path(__file__).resolve().parents[2]
RELEASE = "kubernetes:helm.sh/v3:Release"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
NODE = "kubernetes:core/v1:Node"

pytestmark = pytest.mark.unit


def local() -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())
    environment: dict[str, Any] = content["config"]["gpuform:environment"]
    return environment


def existing() -> dict[str, Any]:
    return {
        "name": "there",
        "cluster": {"kind": "existing", "kubeconfig": "~/.kube/config", "context": "prod"},
        "pools": [
            {
                "name": "t4",
                "gpu": {"models": ["T4"], "count": 1},
                "selector": {"gpu": "t4"},
                "sharing": {"kind": "time_slicing", "replicas": 4},
            },
            {
                "name": "a100",
                "gpu": {"models": ["A100-40GB"], "count": 1},
                "selector": {"gpu": "a100", "zone": "b"},
                "sharing": {"kind": "mig", "layout": "all-1g.5gb"},
            },
        ],
    }


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return record(local())


@pytest.mark.parametrize("environment", [local(), existing()], ids=["embedded", "existing"])
def test_preview_and_up_register_the_same_resources(environment: dict[str, Any]) -> None:
    preview, real = record(environment, preview=True), record(environment)
    assert preview.registered() == real.registered()
    assert len(real.resources) > 8


def test_every_simulated_node_is_labelled_and_every_gpu_node_tainted(recorded: Recorder) -> None:
    nodes = {node.name: node.inputs for node in recorded.of(NODE)}
    assert len(nodes) == 9
    for name, inputs in nodes.items():
        pool = name.removeprefix("pools-").rpartition("-")[0]
        assert inputs["metadata"]["labels"]["gpuform.io/pool"] == pool
        taints = inputs.get("spec", {}).get("taints", [])
        expected = (
            [] if pool == "cpu" else [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
        )
        assert taints == expected, name


def test_the_operators_hook_may_upgrade_its_crds(recorded: Recorder) -> None:
    """The chart's values require both together."""
    (release,) = [one for one in recorded.of(RELEASE) if one.inputs["name"] == "gpu-operator"]
    assert release.inputs["disableOpenapiValidation"] is True
    assert release.inputs["values"]["operator"]["upgradeCRD"] is True


def test_a_config_map_of_the_same_name_changes_in_place(recorded: Recorder) -> None:
    assert recorded.one("pulumi:providers:kubernetes").inputs["enableConfigMapMutable"] == "true"


def test_the_release_names_the_config_maps_that_are_made(recorded: Recorder) -> None:
    (release,) = [one for one in recorded.of(RELEASE) if one.inputs["name"] == "gpu-operator"]
    found = [config_map.inputs["metadata"] for config_map in recorded.of(CONFIG_MAP)]
    names = {one["name"] for one in found if one["namespace"] == "gpu-operator"}
    values = release.inputs["values"]
    told = {values[part]["config"]["name"] for part in ("devicePlugin", "migManager", "dcgmExporter")}
    assert told == names
    assert release.inputs["atomic"] is True
    assert release.inputs["chart"].endswith("charts/gpu-operator-sim")


def test_a_layout_workflow_for_every_pool_whose_gpus_can_be_cut(recorded: Recorder) -> None:
    layouts = {r.name: r.inputs for r in recorded.of("gpuform:nodes:MigLayout")}
    assert set(layouts) == {"mig-a100-mig", "mig-a100-7", "mig-a100-whole"}
    assert layouts["mig-a100-mig"]["config"] == "3g.20gb-2x2g.10gb"
    assert layouts["mig-a100-mig"]["offers"] == {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 2}
    assert layouts["mig-a100-mig"]["selector"] == "gpuform.io/pool=a100-mig"


def test_an_existing_cluster_gets_labels_and_taints_and_no_nodes() -> None:
    recorded = record(existing())
    assert recorded.of(NODE) == []
    pools = {r.name: r.inputs for r in recorded.of("gpuform:nodes:PoolNodes")}
    assert pools["pools-a100"]["selector"] == "gpu=a100,zone=b"
    assert pools["pools-a100"]["labels"]["gpuform.io/pool"] == "a100"
    assert pools["pools-t4"]["labels"]["nvidia.com/device-plugin.config"] == "slice-4"
    assert pools["pools-t4"]["context"] == "prod"
    (release,) = recorded.of(RELEASE)
    assert release.inputs["chart"] == "gpu-operator"
    assert release.inputs["version"] == "v26.7.0"
