"""Set-ups of the sources that no stack of ours and no other test of the plan has: declared and planned."""

from __future__ import annotations

from typing import Any

import pytest

from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.plan import device_plugin, gpu_operator, inventory, sharing, workloads
from tests.build.edits import message
from tests.build.environments import declared, gpus, mig_configs, on, plugin

pytestmark = pytest.mark.unit

A100 = {"models": ["A100-40GB"], "count": 1}
SHARES: dict[str, Any] = {"kind": "time_slicing", "replicas": 3, "rename": False}


def configured(env: Environment) -> dict[str, Any]:
    """The device plugin's configuration of each pool."""
    key, found = "nvidia.com/device-plugin.config", plugin(env)
    return {pool.name: found[sharing.pool_labels(env, pool)[key]] for pool in env.pools}


def test_cern_row_9_each_class_has_its_sharing() -> None:
    """CERN's table of use cases, side by side; work that may wait alone takes turns."""
    kinds: dict[str, dict[str, Any]] = {
        "cad": {"kind": "mig", "layout": {"2g.10gb": 3}},
        "notebooks": {"kind": "mig", "layout": "all-1g.5gb", "share": {"replicas": 2}},
        "simulation": {"kind": "exclusive"},
        "ci": {"kind": "time_slicing", "replicas": 8},
    }
    pools = [{"name": name, "machine": "g4.p1.40g", "sharing": one} for name, one in kinds.items()]
    env = on("embedded", *pools, workloads=[{"name": name, "pool": name} for name in kinds])
    assert {one["metadata"]["name"]: gpus(one) for one in workloads.manifests(env)} == {
        "cad": {"nvidia.com/mig-2g.10gb": "1"},
        "notebooks": {"nvidia.com/mig-1g.5gb.shared": "1"},
        "simulation": {"nvidia.com/gpu": "1"},
        "ci": {"nvidia.com/gpu.shared": "1"},
    }
    assert [sum(allocatable.resources(pool).values()) for pool in env.pools] == [3, 14, 1, 8]


def test_cern_row_10_notebooks_with_a_minimum_of_cpu_and_memory_and_a_gpu() -> None:
    """The fields of Kubeflow's form: editor, minimum CPU, minimum memory in Gi, number of GPUs, vendor."""
    own = {"kind": "notebook", "pool": "p0", "cpu": 2, "memory": "8Gi", "count": 1}
    works = [{**own, "name": one, "user": one, "editor": one} for one in ("jupyterlab", "vscode")]
    pool = {"machine": "g4.p1.40g", "nodes": 2}
    for one in workloads.manifests(on("embedded", pool, workloads=works)):
        if one["kind"] == "StatefulSet":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            requested = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
            assert container["resources"]["requests"] == requested
    less = declared("embedded", pool, workloads=[{**works[0], "cpu": "100m"}])
    assert "less than an editor needs" in message(less)


def test_bumble_own_layout_of_three_small_and_two_middle_slices() -> None:
    """Under the guide's name in our own object: the operator overwrites edits of its default one."""
    name, slices = "all-3x1g.5gb_2x2g.10gb", {"1g.5gb": 3, "2g.10gb": 2}
    pool = {"gpu": A100, "sharing": {"kind": "mig", "layout": slices, "name": name}}
    env = on("existing", pool, gpu_operator={"driver": "host"})
    config_map = sharing.mig_parted_config_map(env)
    assert config_map is not None
    assert config_map["metadata"]["name"].startswith("nvidia-mig-config-")
    configs = mig_configs(env)
    assert sorted(configs) == [name, "all-disabled"]
    assert configs[name][0]["mig-devices"] == slices
    assert sharing.mig_config_name(env.pools[0]) == name
    assert allocatable.resources(env.pools[0]) == {"nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-2g.10gb": 2}


def test_bumble_driver_of_the_hosts_with_the_operators_switched_off() -> None:
    """525.60.11 from NVIDIA's installer, as in the text; the reader must find its hash."""
    url = "https://mirror.example/Linux-x86_64/525.60.11/NVIDIA-Linux-x86_64-525.60.11.run"
    runfile = {"url": url, "sha256": "0" * 64}
    driver = {"source": "runfile", "version": "525.60.11", "runfile": runfile}
    pool = {"gpu": A100, "sharing": {"kind": "mig", "layout": "all-1g.5gb"}}
    env = on("hosts", pool, cluster={"driver": driver})
    host = inventory.inventory(env, {})["_meta"]["hostvars"]["h0"]
    assert (host["nvidia_driver_version"], host["nvidia_driver_runfile"]) == ("525.60.11", runfile)
    assert host["nvidia_driver_modules"] == "proprietary", "open ones became NVIDIA's advice with R560"
    assert host["nvidia_mig_layout"] == "", "the operator's label says it"
    assert sharing.mig_config_name(env.pools[0]) == "all-1g.5gb"
    assert gpu_operator.values(env)["driver"] == {"enabled": False}


def test_cisco_row_17_the_plugin_is_kept_to_gpu_nodes() -> None:
    """The device plugin by its own chart, on node images with driver and toolkit."""
    pool = {"machine": "g4dn.xlarge", "sharing": {**SHARES, "fail_requests_greater_than_one": False}}
    env = on("embedded", pool, gpu_operator={"mode": "device_plugin"})
    values = device_plugin.values(env)
    required = values["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [one for term in required["nodeSelectorTerms"] for one in term["matchExpressions"]]
    assert len(terms) == len(required["nodeSelectorTerms"]), "each alone is enough"
    asked = [(one["key"], one["operator"], one["values"]) for one in terms]
    assert asked == [
        ("feature.node.kubernetes.io/pci-10de.present", "In", ["true"]),
        ("feature.node.kubernetes.io/cpu-model.vendor_id", "In", ["NVIDIA"]),
        ("nvidia.com/gpu", "In", ["true"]),
    ]
    assert values["nodeSelector"] == {"nvidia.com/gpu": "true"}
    assert values["tolerations"] == [{"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"}]
    assert sharing.pool_labels(env, env.pools[0])["nvidia.com/gpu"] == "true"
    assert sharing.pool_taints(env, env.pools[0])[0]["value"] == "true"


def test_cisco_node_with_its_toolkit_and_nvcc() -> None:
    """Toolkit 1.15.0 needs its acknowledgements; nvcc is of CUDA 12.2."""
    holes = ["CVE-2024-0132", "CVE-2025-23359", "CVE-2025-23266", "CVE-2026-24260"]
    cluster = {
        "driver": {"source": "nvidia", "version": "550.163.01"},
        "toolkit": {"version": "1.15.0"},
        "acknowledge": holes,
        "cuda": "12.2",
        "kubeconfig": None,
    }
    env = on("hosts", {"gpu": {"models": ["T4"], "count": 1}}, cluster=cluster)
    host = inventory.inventory(env, {})["_meta"]["hostvars"]["h0"]
    assert host["validate_inventory_gpu"] == {"model": "T4", "product": "Tesla T4", "count": 1}
    assert host["nvidia_container_toolkit_version"] == "1.15.0"
    assert host["nvidia_container_toolkit_acknowledge"] == list(env.resolved()["cluster"]["acknowledge"])
    assert host["cuda_toolkit_version"] == "12.2"


def test_cisco_row_19_each_kind_is_a_pool_of_one_cluster() -> None:
    """Under the article's operator-wide ``migStrategy: none``; tests/config refuses vGPU, the fifth kind."""
    kinds: dict[str, dict[str, Any]] = {
        "one": {"kind": "exclusive"},
        "mps": {"kind": "mps", "replicas": 3},
        "turns": SHARES,
        "mig": {"kind": "mig", "layout": "all-1g.5gb", "strategy": "mixed"},
    }
    pools = [{"name": name, "machine": "g4.p1.40g", "sharing": one} for name, one in kinds.items()]
    env = on("embedded", *pools, gpu_operator={"mig_strategy": "none"})
    offered, configs = {pool.name: allocatable.resources(pool) for pool in env.pools}, configured(env)
    assert {
        name: (offered[name], configs[name]["flags"]["migStrategy"], list(configs[name].get("sharing", {})))
        for name in kinds
    } == {
        "one": ({"nvidia.com/gpu": 1}, "none", []),
        "mps": ({"nvidia.com/gpu": 3}, "none", ["mps"]),
        "turns": ({"nvidia.com/gpu": 3}, "none", ["timeSlicing"]),
        "mig": ({"nvidia.com/mig-1g.5gb": 7}, "mixed", []),
    }
    assert configs["mps"]["sharing"]["mps"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 3}]
