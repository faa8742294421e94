"""How pods get their GPUs: as CDI devices if the container runtime supports them, else by a RuntimeClass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.config import parse
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.model.hosts.cluster import CDI, format_version
from infra.plan import device_plugin, gpu_operator, inventory, readiness_gate, workloads
from lab.rehearse import nodes
from tests.plan.environments import on, pod_spec

pytestmark = pytest.mark.unit

ROLE = Path(__file__).parents[2] / "ansible/roles/nvidia_container_toolkit"
WORK = [
    {"name": name, "kind": kind, "pool": "p", "image": "x:1"}
    for name, kind in (("a", "pod"), ("b", "deployment"), ("c", "job"))
]


def hosts(gpu_operator: dict[str, Any] | None = None, **cluster: Any) -> Environment:
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
    env = hosts(**cluster)
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
    by_mounts, by_cdi = hosts(alone), hosts(alone, toolkit={"mode": "cdi"})
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
    found = warnings(hosts(**cluster))
    assert [line.partition(":")[0] for line in found] == (["cluster.runtime_version"] if warns else [])


def existing(operator: dict[str, Any], *work: dict[str, Any]) -> Environment:
    pool = {"name": "p", "machine": "g2.5xlarge"}
    return on("existing", pool, gpu_operator=operator, workloads=work)


def test_an_existing_cluster_may_name_its_class_and_a_workload_its_own() -> None:
    assert classes(existing({}, *WORK)) == [None] * 3
    assert classes(existing({"runtime_class": "nv"}, *WORK)) == ["nv"] * 3
    assert classes(existing({"runtime_class": "nv"}, {**WORK[0], "runtime_class": "kata"})) == ["kata"]
    assert classes(existing({}, {**WORK[0], "runtime_class": "nvidia"})) == ["nvidia"]
    assert classes(existing({"mode": "existing", "runtime_class": "nv"}, *WORK)) == ["nv"] * 3
    alone = existing({"mode": "device_plugin", "runtime_class": "nv"})
    assert device_plugin.values(alone)["runtimeClassName"] == "nv"


def test_a_rehearsal_has_the_classes_that_the_operator_does_not_create() -> None:
    def made(env: Environment) -> list[str]:
        return [class_["metadata"]["name"] for class_ in nodes.runtime_classes(env)]

    assert made(hosts()) == []
    assert made(hosts({"mode": "device_plugin"})) == ["nvidia"]
    assert made(existing({"runtime_class": "nv"}, {**WORK[0], "runtime_class": "kata"})) == ["kata", "nv"]


def test_the_role_enables_cdi_from_the_same_version_on() -> None:
    tasks = (ROLE / "tasks/containerd.yml").read_text()
    assert f"is version('{format_version(CDI['containerd'].first)}', '>=')" in tasks
