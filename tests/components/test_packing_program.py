from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.components.recording import Recorder, record

pytestmark = pytest.mark.unit

ENV: dict[str, Any] = {
    "name": "there",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"gpu": "t4"}}],
    "scheduling": {"packer": True, "version": "1.34.4"},
    "priorities": {"high": 1000},
    "namespaces": [{"name": "team", "quota": {"t4": 4}}],
    "workloads": [
        {"name": "w", "namespace": "team", "kind": "deployment", "pool": "t4", "image": "a:1",
         "priority": "high"}
    ],
}  # fmt: skip
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
RBAC = "kubernetes:rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return record(ENV)


def test_preview_and_up_register_the_same_resources(recorded: Recorder) -> None:
    preview = record(ENV, preview=True)
    assert preview.registered() == recorded.registered()


def test_pods_come_after_who_places_them_and_what_bounds_them(recorded: Recorder) -> None:
    (work,) = [one for one in recorded.of(DEPLOYMENT) if one.inputs["metadata"]["name"] == "w"]
    assert work.inputs["spec"]["template"]["spec"]["schedulerName"] == "gpuform-packer"
    wanted = {
        f"{DEPLOYMENT} packer-Deployment-gpuform-packer",
        "kubernetes:core/v1:ResourceQuota room-quota-team",
        "kubernetes:scheduling.k8s.io/v1:PriorityClass room-priority-high",
    }
    assert wanted <= work.after


def test_the_scheduler_starts_with_its_rights_and_its_configuration(recorded: Recorder) -> None:
    (packer,) = [one for one in recorded.of(DEPLOYMENT) if one.name.startswith("packer")]
    needed = {one.split()[0] for one in packer.after}
    assert {CONFIG_MAP, f"{RBAC}:ClusterRoleBinding", f"{RBAC}:Role", f"{RBAC}:RoleBinding"} <= needed
    kinds = [one.type.rpartition(":")[2] for one in recorded.resources if one.name.startswith("packer")]
    assert sorted(kinds) == [
        "ClusterRoleBinding",
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "RoleBinding",
        "Scheduler",
        "ServiceAccount",
    ]
    (binding,) = [one for one in recorded.of(f"{RBAC}:RoleBinding") if "authentication" in one.name]
    assert binding.inputs["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    assert binding.inputs["metadata"]["namespace"] == "kube-system"


def test_the_resource_name_of_its_configuration_stays_when_the_object_is_another(recorded: Recorder) -> None:
    changed = copy.deepcopy(ENV)
    changed["pools"][0]["sharing"] = {"kind": "time_slicing", "replicas": 4}
    other = record(changed)

    def config(of: Recorder) -> tuple[str, str]:
        (found,) = [one for one in of.of(CONFIG_MAP) if one.name.startswith("packer")]
        return found.name, found.inputs["metadata"]["name"]

    (name, made), (same, another) = config(recorded), config(other)
    assert name == same
    assert made != another


def test_nothing_of_it_where_nothing_is_declared() -> None:
    plain = {key: ENV[key] for key in ("name", "cluster", "pools")}
    names = {one.name for one in record(plain).resources}
    assert not [name for name in names if name.startswith(("packer", "room"))]
