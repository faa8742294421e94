"""The device plugin without the operator, and how pods get GPUs: as CDI devices or by a RuntimeClass.

The chart is part of the device plugin's Go module. The newest module that a proxy has is older than the
installed chart; their values files have had the same keys since 0.17.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra import versions
from infra.config import parse
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.model.hosts.cluster import CDI, format_version
from infra.plan import device_plugin, gpu_operator, inventory, readiness_gate, sharing, workloads
from infra.plan.render import render
from infra.strict_yaml import load_all
from lab.rehearse import nodes
from lab.toolchain import Toolchain
from tests.build.aws_environments import aws
from tests.build.environments import on, pod_spec
from tests.checks import charts
from tests.fakes.recorder import record

pytestmark = pytest.mark.unit


ROOT = Path(__file__).parents[2]
THREE = {"kind": "time_slicing", "replicas": 3, "rename": False, "fail_requests_greater_than_one": False}
T4, MPS = {"machine": "g4dn.xlarge", "sharing": THREE}, {"kind": "mps", "replicas": 4}
ALONE: dict[str, Any] = {"mode": "device_plugin"}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
ON_AWS = aws({"name": "p", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}, "sharing": THREE})


def existing(*pools: dict[str, Any], **operator: Any) -> Environment:
    return on("existing", *pools, gpu_operator=operator)


def hosts(mode: str, **pool: Any) -> Environment:
    gpus = {"gpu": {"models": ["T4"], "count": 1}, **pool}
    return on("hosts", gpus, cluster={"toolkit": {"mode": mode}}, gpu_operator=ALONE)


AWS = parse({**ON_AWS.resolved(), "gpu_operator": ALONE})
ENVIRONMENTS = {
    "existing": existing(T4, **ALONE),
    "by mounts or variable": existing(T4, cdi=False, **ALONE),
    "whole GPUs": existing({"machine": "g4dn.xlarge"}, {"machine": "g4.p1.40g"}, **ALONE),
    "mps": existing({**T4, "sharing": MPS}, {"machine": "m6i.xlarge"}, **ALONE),
    "own hosts": hosts("runtime", sharing=MPS),
    "own hosts with cdi": hosts("cdi"),
    "embedded": on("embedded", T4, gpu_operator=ALONE),
    "karpenter": AWS,
}


@pytest.fixture(scope="module")
def chart() -> Path:
    found = charts.folder("nvidia-device-plugin")
    assert found
    return found


def rendered(toolchain: Toolchain, chart: Path, env: Environment) -> dict[tuple[str, str], Any]:
    release = device_plugin.release(env)
    command = [str(toolchain.path("helm")), "template", release.name, str(chart), "-n", release.namespace]
    text = json.dumps(release.values)
    done = subprocess.run([*command, "-f", "-"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    objects = [item for item in load_all(done.stdout) if item]
    return {(entry["kind"], entry["metadata"]["name"]): entry for entry in objects}


@pytest.mark.parametrize("name", ["existing", "own hosts"])
def test_both_charts_run_the_same_pods_in_the_same_places(
    name: str, chart: Path, toolchain: Toolchain
) -> None:
    env = ENVIRONMENTS[name]
    theirs = rendered(toolchain, chart, env)
    ours = rendered(toolchain, ROOT / "charts/device-plugin-sim", env)
    kinds = ("DaemonSet", "Deployment")
    assert {key for key in ours if key[0] in kinds} == {key for key in theirs if key[0] in kinds}
    for key in ours:
        mine, real = (found[key]["spec"]["template"]["spec"] for found in (ours, theirs))
        for field in ("nodeSelector", "affinity", "tolerations", "runtimeClassName"):
            if "node-feature-discovery" not in key[1] or field == "tolerations":
                assert mine.get(field) == real.get(field), (key, field)
        label = ours[key]["spec"]["template"]["metadata"]["labels"].get("app")
        if label == device_plugin.NAME:
            assert theirs[key]["spec"]["template"]["metadata"]["labels"]["app"] == label


def test_the_pods_are_told_the_config_map_and_the_driver_of_the_node(
    chart: Path, toolchain: Toolchain
) -> None:
    env = ENVIRONMENTS["existing"]
    config_map = sharing.device_plugin_config_map(env)
    assert config_map
    pod = rendered(toolchain, chart, env)["DaemonSet", device_plugin.NAME]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["available-configs"]["configMap"] == {"name": config_map["metadata"]["name"]}
    assert volumes["driver-root"]["hostPath"]["path"] == "/"
    env_of = {c["name"]: {e["name"]: e.get("value") for e in c["env"]} for c in pod["containers"]}
    assert env_of["nvidia-device-plugin-sidecar"]["DEFAULT_CONFIG"] in config_map["data"]
    assert env_of["nvidia-device-plugin-ctr"]["DEVICE_LIST_STRATEGY"] == "cdi-cri"
    assert env_of["nvidia-device-plugin-ctr"]["MIG_STRATEGY"] == "none"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("existing", {"deviceListStrategy": "cdi-cri", "nvidiaDriverRoot": "/"}),
        ("by mounts or variable", {"deviceListStrategy": "envvar", "compatWithCPUManager": True}),
    ],
)
def test_how_a_gpu_gets_into_a_container(name: str, expected: dict[str, Any]) -> None:
    values = device_plugin.values(ENVIRONMENTS[name])
    keys = ("deviceListStrategy", "nvidiaDriverRoot", "compatWithCPUManager")
    assert {key: values[key] for key in keys if key in values} == expected
    assert values["securityContext"] == values["gfd"]["securityContext"] == {"privileged": True}


def test_the_plugins_own_pods_see_gpus_where_the_variable_counts_in_privileged_ones_only(
    chart: Path, toolchain: Toolchain
) -> None:
    objects = rendered(toolchain, chart, ENVIRONMENTS["karpenter"])
    for name in (device_plugin.NAME, f"{device_plugin.NAME}-gpu-feature-discovery"):
        pod = objects["DaemonSet", name]["spec"]["template"]["spec"]
        (own,) = [container for container in pod["containers"] if container["name"].endswith("-ctr")]
        assert own["securityContext"] == {"privileged": True}


def test_the_release_is_nvidias_or_ours() -> None:
    theirs, ours = (device_plugin.release(ENVIRONMENTS[name]) for name in ("existing", "embedded"))
    assert (theirs.chart, theirs.version) == ("nvidia-device-plugin", versions.DEVICE_PLUGIN)
    assert theirs.repository == "https://nvidia.github.io/k8s-device-plugin"
    assert (ours.chart, ours.repository, ours.version) == ("charts/device-plugin-sim", None, None)
    pinned = existing(T4, version="0.17.4", repository="https://mirror.example", **ALONE)
    release = device_plugin.release(pinned)
    assert (release.repository, release.version) == ("https://mirror.example", "0.17.4")


def test_own_hosts_get_the_runtime_class_that_ansible_made_a_runtime_for() -> None:
    made = device_plugin.runtime_class(ENVIRONMENTS["own hosts"])
    assert made
    assert (made["metadata"]["name"], made["handler"]) == ("nvidia", "nvidia")
    assert device_plugin.values(ENVIRONMENTS["own hosts"])["runtimeClassName"] == "nvidia"
    assert "runtime-class.yaml" in render(ENVIRONMENTS["own hosts"], {})
    assert device_plugin.runtime_class(ENVIRONMENTS["own hosts with cdi"]) is None
    hosts = ENVIRONMENTS["own hosts"]
    on_k3s = hosts.model_copy(update={"cluster": hosts.cluster.model_copy(update={"distribution": "k3s"})})
    assert device_plugin.runtime_class(on_k3s) is None, "k3s brings it"
    assert device_plugin.values(on_k3s)["runtimeClassName"] == "nvidia"


def test_no_operand_is_asked_to_cut_a_gpu() -> None:
    """A GPU that supports MIG stays whole: no layout, no label, no MIG manager configuration."""
    env = ENVIRONMENTS["whole GPUs"]
    assert sharing.mig_parted_config_map(env) is None
    files = render(env)
    assert "sharing.yaml" not in files
    assert "mig" not in files["pools.yaml"]


def test_nodes_of_karpenters_are_born_for_the_plugin_and_let_in_by_the_gate() -> None:
    files = render(AWS)
    assert "gpu-operator.yaml" not in files
    (pool,) = [item for item in load_all(files["karpenter.yaml"]) if item.get("kind") == "NodePool"]
    assert pool["spec"]["template"]["metadata"]["labels"]["nvidia.com/gpu"] == "true"
    assert readiness_gate.operands(AWS) == ("nvidia-device-plugin",)
    values = device_plugin.values(AWS)
    assert {"key": "gpuform.io/gpu-not-ready", "operator": "Exists", "effect": "NoSchedule"} in values[
        "tolerations"
    ]
    addons = {"key": "CriticalAddonsOnly", "operator": "Exists", "effect": "NoSchedule"}
    assert addons in values["nfd"]["master"]["tolerations"]


@pytest.mark.parametrize("name", ["embedded", "own hosts"])
def test_the_program_registers_the_plugin_in_the_operators_place(name: str) -> None:
    recorded = record(ENVIRONMENTS[name].resolved())
    types = [resource.type for resource in recorded.resources]
    assert types.count("kubernetes:helm.sh/v3:Release") == 1
    assert "gpuform:platform:DevicePlugin" in types
    assert "gpuform:platform:GpuOperator" not in types
    assert "gpuform:nodes:MigLayout" not in types
    assert ("kubernetes:node.k8s.io/v1:RuntimeClass" in types) is (name == "own hosts")


ROLE = Path(__file__).parents[2] / "ansible/roles/nvidia_container_toolkit"
WORK = [
    {"name": name, "kind": kind, "pool": "p", "image": "x:1"}
    for name, kind in (("a", "pod"), ("b", "deployment"), ("c", "job"))
]


def joined(gpu_operator: dict[str, Any] | None = None, **cluster: Any) -> Environment:
    """A pool with GPUs with a workload of each kind, and one without GPUs with a pod."""
    pools = {"name": "p", "gpu": {"models": ["T4"], "count": 1}}, {"name": "cpu"}
    work = [*WORK, {"name": "d", "pool": "cpu"}]
    return on("hosts", *pools, cluster=cluster, gpu_operator=gpu_operator or {}, workloads=work)


def classes(env: Environment) -> list[str | None]:
    """The RuntimeClass of each workload's pods."""
    return [pod_spec(manifest).get("runtimeClassName") for manifest in workloads.manifests(env)]


BY_CLASS, BY_CDI = ["nvidia"] * 3 + [None], [None] * 4


@pytest.mark.parametrize(
    ("cluster", "mode", "by_cdi"),
    [
        ({}, "runtime", False),  # every containerd supports a second runtime
        ({"runtime_version": "1.6.20"}, "runtime", False),
        ({"runtime_version": "1.7"}, "cdi", True),
        ({"runtime_version": "2.1.4"}, "cdi", True),
        ({"runtime_version": "1.7", "toolkit": {"mode": "runtime"}}, "runtime", False),
        ({"toolkit": {"mode": "cdi"}}, "cdi", True),
        ({"runtime": "crio"}, "runtime", True),  # CRI-O supports CDI devices in both modes
    ],
)
def test_role_operator_pods_and_gate_agree_on_how_a_gpu_comes(
    cluster: dict[str, Any], mode: str, by_cdi: bool
) -> None:
    env = joined(**cluster)
    told = inventory.inventory(env, {})["_meta"]["hostvars"]["h0"]
    assert told["nvidia_container_toolkit_mode"] == mode
    assert told["nvidia_container_toolkit_runtime"] == cluster.get("runtime", "containerd")
    values = gpu_operator.values(env)
    assert values["cdi"]["enabled"] is by_cdi
    listed = None if by_cdi else [{"name": "DEVICE_LIST_STRATEGY", "value": "volume-mounts"}]
    assert values["devicePlugin"].get("env") == listed
    assert classes(env) == (BY_CDI if by_cdi else BY_CLASS)
    assert readiness_gate.pools(env)["p"]["trial"].get("runtime_class") == (None if by_cdi else "nvidia")
    assert parse(env.resolved()) == env


def test_the_device_plugin_alone_passes_gpus_as_the_runtime_takes_them() -> None:
    alone = {"mode": "device_plugin"}
    by_mounts, by_cdi = joined(alone), joined(alone, toolkit={"mode": "cdi"})
    assert device_plugin.values(by_mounts)["deviceListStrategy"] == "volume-mounts"
    assert device_plugin.values(by_cdi)["deviceListStrategy"] == "cdi-cri"
    assert (classes(by_mounts), classes(by_cdi)) == (BY_CLASS, BY_CDI)


@pytest.mark.parametrize(
    ("cluster", "warns"),
    [
        ({}, True),
        ({"runtime_version": "1.6"}, False),
        ({"toolkit": {"mode": "runtime"}}, False),
        ({"runtime": "crio"}, False),
    ],
)
def test_who_declares_nothing_is_told_that_other_pods_need_the_class(
    cluster: dict[str, Any], warns: bool
) -> None:
    found = warnings(joined(**cluster))
    assert [line.partition(":")[0] for line in found] == (["cluster.runtime_version"] if warns else [])


def named_class(operator: dict[str, Any], *work: dict[str, Any]) -> Environment:
    pool = {"name": "p", "machine": "g2.5xlarge"}
    return on("existing", pool, gpu_operator=operator, workloads=work)


def test_an_existing_cluster_may_name_its_class_and_a_workload_its_own() -> None:
    assert classes(named_class({}, *WORK)) == [None] * 3
    assert classes(named_class({"runtime_class": "nv"}, *WORK)) == ["nv"] * 3
    assert classes(named_class({"runtime_class": "nv"}, {**WORK[0], "runtime_class": "kata"})) == ["kata"]
    assert classes(named_class({}, {**WORK[0], "runtime_class": "nvidia"})) == ["nvidia"]
    assert classes(named_class({"mode": "existing", "runtime_class": "nv"}, *WORK)) == ["nv"] * 3
    alone = named_class({"mode": "device_plugin", "runtime_class": "nv"})
    assert device_plugin.values(alone)["runtimeClassName"] == "nv"


def test_a_rehearsal_has_the_classes_that_the_operator_does_not_create() -> None:
    def made(env: Environment) -> list[str]:
        return [class_["metadata"]["name"] for class_ in nodes.runtime_classes(env)]

    assert made(joined()) == []
    assert made(joined({"mode": "device_plugin"})) == ["nvidia"]
    assert made(named_class({"runtime_class": "nv"}, {**WORK[0], "runtime_class": "kata"})) == ["kata", "nv"]


def test_the_role_enables_cdi_from_the_same_version_on() -> None:
    tasks = (ROLE / "tasks/containerd.yml").read_text()
    assert f"is version('{format_version(CDI['containerd'].first)}', '>=')" in tasks
