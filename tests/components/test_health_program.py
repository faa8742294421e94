"""The health loop in the program: registered resources, dependencies, and other repair mechanisms."""

from __future__ import annotations

from typing import Any

import pytest

from tests.components.aws_stacks import small
from tests.components.recording import Recorder, record

pytestmark = pytest.mark.unit

ENV: dict[str, Any] = {
    "name": "there",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"gpu": "t4"}}],
    "monitoring": {"alerts": False, "dashboards": False},
    "health": {"mode": "replace"},
}
RBAC = "kubernetes:rbac.authorization.k8s.io/v1"
MONITOR = "kubernetes:monitoring.coreos.com/v1:ServiceMonitor"
RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return record(ENV)


def test_preview_and_up_register_the_same_resources(recorded: Recorder) -> None:
    preview = record(ENV, preview=True)
    assert preview.registered() == recorded.registered()


def test_it_starts_with_its_rights_after_the_operands_and_what_it_asks(recorded: Recorder) -> None:
    (loop,) = [one for one in recorded.of("kubernetes:apps/v1:Deployment") if one.name == "health-Deployment"]
    needed = {one.split()[0] for one in loop.after}
    assert {f"{RBAC}:ClusterRoleBinding", f"{RBAC}:RoleBinding", "kubernetes:core/v1:ConfigMap"} <= needed
    (monitor,) = recorded.of(MONITOR)
    assert monitor.inputs["spec"]["endpoints"][0]["port"] == "metrics"
    # Its kind comes with the release.
    assert f"{RELEASE} monitoring-release" in monitor.after


@pytest.mark.parametrize(("health", "repaired"), [(None, True), ("gpuform", False), ("eks", True)])
def test_a_group_with_gpus_is_repaired_by_one(health: str | None, repaired: bool) -> None:
    env = small({"name": "fixed", "machine": "g4dn.xlarge", "nodes": 1})
    if health:
        env |= {"monitoring": ENV["monitoring"], "health": {"remediator": health}}
    groups = {one.name: one.inputs for one in record(env).of("aws:eks/nodeGroup:NodeGroup")}
    found = {name: inputs["nodeRepairConfig"]["enabled"] for name, inputs in groups.items()}
    assert found == {"mng-fixed": repaired, "system-system": True}
