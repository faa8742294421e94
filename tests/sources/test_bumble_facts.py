"""Bumble's guide: layouts by name, pods pinned by product, Triton on KServe (FACTS 1, rows 11 to 13, 16)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.config import load, parse
from infra.plan import gpu_operator, inventory, kserve, sharing, workloads

pytestmark = pytest.mark.unit

NAME = "all-3x1g.5gb_2x2g.10gb"
LOCAL = load(Path(__file__).parents[2] / "Pulumi.local.yaml")


def test_bumble_all_1g_5gb() -> None:
    pool = LOCAL.pool("a100-7")
    assert sharing.mig_config_name(pool) == "all-1g.5gb"
    assert sharing.offered(LOCAL, pool) == {"nvidia.com/mig-1g.5gb": 7}


def test_bumble_own_layout_of_three_small_and_two_middle_slices() -> None:
    pool = {
        "name": "ds",
        "selector": {"kubernetes.io/hostname": "ds-node1"},
        "gpu": {"models": ["A100-40GB"], "count": 1},
        "sharing": {"kind": "mig", "layout": {"1g.5gb": 3, "2g.10gb": 2}, "name": NAME},
    }
    env = parse(
        {
            "name": "bumble",
            "cluster": {"kind": "existing", "kubeconfig": "~/.kube/config"},
            "gpu_operator": {"driver": "host"},
            "pools": [pool],
        }
    )
    config_map = sharing.mig_parted_config_map(env)
    assert config_map is not None
    # Our own object: the operator overwrites edits of its default one.
    assert config_map["metadata"]["name"].startswith("nvidia-mig-config-")
    # In our ConfigMap under the guide's own name, beside NVIDIA's for GPUs without MIG.
    configs = yaml.safe_load(config_map["data"]["config.yaml"])["mig-configs"]
    assert sorted(configs) == [NAME, "all-disabled"]
    assert configs[NAME][0]["mig-devices"] == {"1g.5gb": 3, "2g.10gb": 2}
    assert sharing.mig_config_name(env.pools[0]) == NAME
    assert sharing.offered(env, env.pools[0]) == {"nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-2g.10gb": 2}
    assert gpu_operator.values(env)["driver"] == {"enabled": False}


def test_bumble_driver_of_the_hosts_with_the_operators_switched_off() -> None:
    """525.60.11 from NVIDIA's installer, as in the text; the reader must find its hash."""
    url = "https://mirror.example/Linux-x86_64/525.60.11/NVIDIA-Linux-x86_64-525.60.11.run"
    runfile = {"url": url, "sha256": "0" * 64}
    env = parse(
        {
            "name": "bumble",
            "cluster": {
                "kind": "hosts",
                "driver": {"source": "runfile", "version": "525.60.11", "runfile": runfile},
                "kubeconfig": "~/.kube/config",
            },
            "pools": [
                {
                    "name": "ds",
                    "hosts": ["ds-node1"],
                    "gpu": {"models": ["A100-40GB"], "count": 1},
                    "sharing": {"kind": "mig", "layout": "all-1g.5gb"},
                }
            ],
        }
    )
    host = inventory.inventory(env, {})["_meta"]["hostvars"]["ds-node1"]
    assert host["nvidia_driver_version"] == "525.60.11"
    assert host["nvidia_driver_runfile"] == runfile
    assert host["nvidia_driver_modules"] == "proprietary", "open ones became NVIDIA's advice with R560"
    assert host["nvidia_mig_layout"] == "", "the operator's label says it"
    assert sharing.mig_config_name(env.pools[0]) == "all-1g.5gb"
    assert gpu_operator.values(env)["driver"] == {"enabled": False}


def test_bumble_pod_pinned_by_product() -> None:
    found = next(item for item in workloads.manifests(LOCAL) if item["metadata"]["name"] == "pod-a100")
    assert found["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB"}
    assert found["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_bumble_row_13_pod_on_a_slice() -> None:
    """The guide's pod-a100-mig: one slice of one A100, requested by its profile's own resource."""
    mapping = LOCAL.resolved()
    mapping["workloads"].append(
        {"name": "pod-a100-mig", "kind": "pod", "pool": "a100-7", "slice": "1g.5gb", "image": "a:1"}
    )
    found = next(
        item for item in workloads.manifests(parse(mapping)) if item["metadata"]["name"] == "pod-a100-mig"
    )
    limits = found["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/mig-1g.5gb"] == "1"
    assert "nvidia.com/gpu" not in limits


def test_bumble_row_16_triton_on_kserve() -> None:
    """A model in a bucket, served by Triton on one slice: the guide's InferenceService, KServe included."""
    serving = {
        "name": "resnet",
        "kind": "inference",
        "pool": "a100-7",
        "slice": "1g.5gb",
        "image": "nvcr.io/nvidia/tritonserver:26.06-py3",
        "service": {"port": 80, "target_port": 8000},
        "model": {"uri": "gs://models/resnet", "format": "onnx"},
    }
    env = parse({**LOCAL.resolved(), "workloads": [serving]})
    found = {one["kind"]: one for one in workloads.manifests(env)}
    assert found["InferenceService"]["apiVersion"] == "serving.kserve.io/v1beta1"
    model = found["InferenceService"]["spec"]["predictor"]["model"]
    assert (model["storageUri"], model["modelFormat"]) == ("gs://models/resnet", {"name": "onnx"})
    assert model["resources"]["limits"]["nvidia.com/mig-1g.5gb"] == "1"
    assert model["args"][:2] == ["tritonserver", "--model-repository=/mnt/models"]
    assert model["runtime"] == found["ServingRuntime"]["metadata"]["name"]
    assert [one.name for one in kserve.releases(env)] == ["cert-manager", "kserve-crd", "kserve"]
