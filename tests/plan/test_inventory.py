"""The inventory: groups, each host's variables, and nothing for hosts that do not need it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.plan.inventory import hosts_of, inventory, key_paths
from tests.plan.hosts_fields import HOSTS, MIRROR

pytestmark = pytest.mark.unit

GOOD = yaml.safe_load((Path(__file__).parents[1] / "config" / "good_hosts.yaml").read_text())


def changed(**cluster: Any) -> dict[str, Any]:
    """The good environment with other cluster settings; None removes one."""
    mapping: dict[str, Any] = copy.deepcopy(GOOD)
    mapping["cluster"].update(cluster)
    mapping["cluster"] = {key: value for key, value in mapping["cluster"].items() if value is not None}
    if "kubeconfig" not in mapping["cluster"]:
        del mapping["workloads"]
    return mapping


def found(mapping: dict[str, Any]) -> dict[str, Any]:
    env = parse(mapping)
    return inventory(env, {path: f"KEY of {path}" for _, path in key_paths(env)})


def of(mapping: dict[str, Any], host: str) -> dict[str, Any]:
    variables: dict[str, Any] = found(mapping)["_meta"]["hostvars"][host]
    return variables


def test_groups_are_those_of_kubernetes_of_gpus_and_of_pools() -> None:
    listed = found(GOOD)
    assert {name: group["hosts"] for name, group in listed.items() if "hosts" in group} == {
        "kube_control_plane": ["cp-1"],
        "kube_node": ["cpu-1", "gpu-1", "gpu-2", "gpu-3", "gpu-4"],
        "gpu": ["gpu-1", "gpu-2", "gpu-3", "gpu-4"],
        "pool_a100": ["gpu-1", "gpu-2"],
        "pool_v100": ["gpu-3"],
        "pool_h100": ["gpu-4"],
        "pool_cpu": ["cpu-1"],
    }
    assert set(listed["all"]["children"]) == {*listed, "ungrouped"} - {"all", "_meta"}
    assert hosts_of(listed) == ["cp-1", "cpu-1", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert hosts_of(listed, "pool_a100") == ["gpu-1", "gpu-2"]
    assert hosts_of(listed, "pool_none") == []


def test_a_pools_dashes_become_underscores() -> None:
    mapping = copy.deepcopy(HOSTS)
    mapping["pools"][2]["name"] = "cpu-of-two"
    assert found(mapping)["pool_cpu_of_two"] == {"hosts": ["cpu-1"]}


def test_how_a_host_is_reached() -> None:
    second = of(GOOD, "gpu-2")
    assert (second["ansible_host"], second["ansible_port"]) == ("10.0.0.2", 2222)
    assert (second["ansible_user"], second["ansible_become"]) == ("deploy", True)
    assert second["ansible_ssh_private_key_file"] == "~/.ssh/gpuform"
    assert of(GOOD, "gpu-1")["ansible_host"] == "gpu-1"
    root = of(changed(user="root", private_key=None), "gpu-1")
    assert root["ansible_become"] is False
    assert "ansible_ssh_private_key_file" not in root


def test_the_keys_of_hosts_are_always_checked() -> None:
    said = of(GOOD, "gpu-1")["ansible_ssh_common_args"]
    assert said == "-o UserKnownHostsFile=/etc/ssh/ssh_known_hosts -o StrictHostKeyChecking=yes"
    plain = of(changed(known_hosts=None), "gpu-1")["ansible_ssh_common_args"]
    assert plain == "-o StrictHostKeyChecking=yes"


def test_what_the_node_of_a_joined_host_carries_is_the_pools() -> None:
    node = of(GOOD, "gpu-1")
    assert node["gpuform_labels"]["gpuform.io/pool"] == node["gpuform_pool"] == "a100"
    assert node["gpuform_taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    assert (node["gpuform_kubeconfig"], node["gpuform_context"]) == ("~/.kube/labs", "labs")
    assert (node["nvidia_driver_kubeconfig"], node["nvidia_driver_context"]) == ("~/.kube/labs", "labs")
    alone = of(changed(kubeconfig=None, context=None), "gpu-1")
    assert {alone[key] for key in alone if key.endswith(("_kubeconfig", "_context"))} == {""}


def test_a_host_knows_how_its_gpus_are_shared() -> None:
    assert of(GOOD, "gpu-1")["gpuform_sharing"] == {"kind": "mig", "layout": "all-1g.5gb"}
    assert of(GOOD, "gpu-3")["gpuform_sharing"] == {"kind": "exclusive"}
    assert of(GOOD, "cpu-1")["gpuform_sharing"] == of(GOOD, "cp-1")["gpuform_sharing"] == {}


def test_the_driver_is_the_pools_or_the_clusters() -> None:
    first, fourth = of(GOOD, "gpu-1"), of(GOOD, "gpu-4")
    assert (first["nvidia_driver_version"], first["nvidia_driver_branch"]) == ("580.95.05", "580")
    assert (fourth["nvidia_driver_version"], fourth["nvidia_driver_branch"]) == ("570.133.20", "570")
    assert (first["nvidia_driver_product"], first["nvidia_driver_count"]) == ("NVIDIA A100-PCIE-40GB", 2)
    assert [of(GOOD, host)["nvidia_driver_modules"] for host in ("gpu-1", "gpu-3", "gpu-4")] == [
        "open",
        "proprietary",
        "open",
    ]
    assert [of(GOOD, host)["nvidia_driver_fabricmanager"] for host in ("gpu-1", "gpu-4")] == [False, True]


def test_a_repository_comes_with_the_text_of_its_key() -> None:
    first = of(HOSTS, "gpu-1")
    assert first["nvidia_driver_repository"] == {**MIRROR, "key": "KEY of mirror.asc"}
    assert first["nvidia_container_toolkit_repository"] == {**MIRROR, "key": "KEY of mirror.asc"}
    second = of(HOSTS, "gpu-2")
    assert second["nvidia_driver_repository"] == {}
    assert second["nvidia_driver_runfile"] == {"url": "https://mirror.example/a.run", "sha256": "a" * 64}
    assert list(key_paths(parse(HOSTS))) == [
        ("cluster.toolkit.repository.key", "mirror.asc"),
        ("cluster.driver.repository.key", "mirror.asc"),
    ]


def test_mig_is_the_operators_in_a_cluster_and_the_roles_outside() -> None:
    joined = of(GOOD, "gpu-1")
    assert (joined["nvidia_mig_layout"], joined["nvidia_mig_config"]) == ("", {})
    alone = changed(kubeconfig=None, context=None)
    cut = of(alone, "gpu-1")
    assert cut["nvidia_mig_layout"] == "all-1g.5gb"
    assert cut["nvidia_mig_config"] == {
        "version": "v1",
        "mig-configs": {
            "all-1g.5gb": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}],
            "all-disabled": [{"devices": "all", "mig-enabled": False}],
        },
    }
    assert of(alone, "gpu-4")["nvidia_mig_layout"] == "all-disabled", "it may have been cut before"
    assert of(alone, "gpu-3")["nvidia_mig_layout"] == "", "Volta has no MIG"


def test_the_order_of_hosts_and_pools_changes_no_byte() -> None:
    mapping = copy.deepcopy(GOOD)
    mapping["pools"].reverse()
    mapping["pools"][3]["hosts"].reverse()
    assert found(mapping) == found(GOOD)
