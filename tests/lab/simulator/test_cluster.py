"""The simulator on a real control plane, with plain kubectl and helm: nodes offer what is declared."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from lab.simulator import keys

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

SLICE_4 = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""
PLUGIN = {"whole": "version: v1\n", "slice-4": SLICE_4}
MIG = """\
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  3g.20gb-2x2g.10gb: [{devices: all, mig-enabled: true, mig-devices: {2g.10gb: 2, 3g.20gb: 1}}]
"""
VALUES: dict[str, Any] = {
    "mig": {"strategy": "mixed"},
    "devicePlugin": {"config": {"name": "plugin-config", "default": "whole"}},
    "migManager": {"config": {"name": "mig-config"}},
    "driver": {"version": "580.126.09"},
}
LABEL, MIG_LABEL, STATE = keys.PLUGIN_CONFIG, keys.MIG_CONFIG, keys.MIG_STATE
PLUGIN_APP = "nvidia-device-plugin-daemonset"
OPERANDS = (
    *("nvidia-driver-daemonset", "nvidia-container-toolkit-daemonset", PLUGIN_APP),
    *("gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-operator-validator"),
)


@pytest.fixture(autouse=True, scope="module")
def operator(site: Any) -> None:
    site.config_map("plugin-config", PLUGIN)
    site.config_map("mig-config", {"config.yaml": MIG})
    site.operator("--wait", **VALUES)


@pytest.fixture
def t4(site: Any) -> str:
    node = site.node("t4-0", "1eb8", config="slice-4")
    site.offers(node, {"gpu.shared": 4})
    return str(node)


def test_cern_time_slicing_slice_4(site: Any, t4: str) -> None:
    assert "nvidia.com/gpu" not in site.get("node", t4)["status"]["capacity"]
    labels = site.labelled(t4, "nvidia.com/gpu.product")
    assert labels["nvidia.com/gpu.product"] == "Tesla-T4"
    assert labels["nvidia.com/gpu.memory"] == "15360"
    assert labels["nvidia.com/cuda.driver-version.full"] == "580.126.09"


def test_cern_operands_run_and_the_cuda_job_completes(site: Any, t4: str) -> None:
    def phases() -> dict[str, list[str]]:
        apps = (*OPERANDS, "nvidia-cuda-validator")
        return {app: [pod["status"]["phase"] for pod in site.operands(t4, app)] for app in apps}

    wanted = {app: ["Running"] for app in OPERANDS} | {"nvidia-cuda-validator": ["Succeeded"]}
    site.until(phases, wanted.__eq__)


def test_cern_mig_mixed(site: Any) -> None:
    node = site.node("mig-0", "20b0")
    site.labelled(node, STATE, "success")
    site.label(node, MIG_LABEL, "3g.20gb-2x2g.10gb")
    site.offers(node, {"gpu": 0, "mig-3g.20gb": 1, "mig-2g.10gb": 2})
    site.labelled(node, STATE, "success")
    site.pod("simulation", {"mig-3g.20gb": 1})
    site.phase("simulation", "Running")


def test_bumble_refuses_to_cut_a_gpu_in_use_then_all_1g5gb(site: Any) -> None:
    node = site.node("mig-1", "20f1")
    site.labelled(node, STATE, "success")
    site.offers(node, {"gpu": 1})
    site.pod("busy", {"gpu": 1}, node)
    site.phase("busy", "Running")
    site.label(node, MIG_LABEL, "all-1g.5gb")
    site.labelled(node, STATE, "failed")
    site.events(node, "In use by another client: default/busy")
    site.offers(node, {"gpu": 1})
    site.kubectl("delete", "pod", "busy")
    site.label(node, MIG_LABEL, "all-disabled")
    site.labelled(node, STATE, "success")
    site.label(node, MIG_LABEL, "all-1g.5gb")
    site.offers(node, {"gpu": 0, "mig-1g.5gb": 7})


def test_unknown_label_crash_loops_and_the_right_one_recovers(site: Any) -> None:
    node = site.node("typo-0", "1eb8", config="slice-9")
    site.until(lambda: json.dumps(site.operands(node, PLUGIN_APP)), lambda text: "CrashLoopBackOff" in text)
    (pod,) = site.operands(node, PLUGIN_APP)
    site.events(pod["metadata"]["name"], "specified config slice-9 does not exist", "gpu-operator")
    assert site.allocatable(node) == {}
    site.label(node, LABEL, "slice-4")
    site.offers(node, {"gpu.shared": 4})
    site.label(node, LABEL, "nonsense")
    site.offers(node, {"gpu.shared": 0})
    site.label(node, LABEL, "whole")
    site.offers(node, {"gpu": 1, "gpu.shared": 0})


def test_killed_simulator_comes_back_and_changes_nothing(site: Any, t4: str) -> None:
    def versions() -> dict[str, str]:
        result = json.loads(site.kubectl("get", "nodes,pods", "-A", "-o", "json"))["items"]
        return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in result}

    before = versions()
    member = next(m for m in site.plane.plane.status().members if m.name == "simulator")
    os.kill(member.pid, signal.SIGKILL)
    site.plane.plane.start(simulator=True)
    site.offers(site.node("later-1", "1eb8", config="slice-4"), {"gpu.shared": 4})
    now = versions()
    assert {uid: now.get(uid) for uid in before} == before
    site.label(t4, LABEL, "whole")
    site.offers(t4, {"gpu": 1, "gpu.shared": 0})
    site.label(t4, LABEL, "slice-4")
    site.offers(t4, {"gpu": 0, "gpu.shared": 4})


def test_a_node_with_a_gpu_that_cannot_be_reset_fails_or_reboots_once(site: Any) -> None:
    node = site.node("virtual-0", "20b0")
    site.kubectl("annotate", "node", node, f"{keys.GPU_RESET}=no")
    site.labelled(node, STATE, "success")
    site.label(node, MIG_LABEL, "all-1g.5gb")
    site.labelled(node, STATE, "failed")
    site.events(node, "Resetting GPU 00000000:00:04.0 is not supported.")
    site.label(node, MIG_LABEL, "all-disabled")
    site.labelled(node, STATE, "success")
    site.offers(node, {"gpu": 1})

    manager = {**VALUES["migManager"], "env": [{"name": "WITH_REBOOT", "value": "true"}]}
    site.operator("--wait", **{**VALUES, "migManager": manager})
    site.pod("bystander", {}, node)
    site.phase("bystander", "Running")
    site.label(node, MIG_LABEL, "all-1g.5gb")

    def seen() -> tuple[Any, ...]:
        result, pod = site.get("node", node), site.get("pod", "bystander")
        ready = [
            c["status"] for o in (result, pod) for c in o["status"]["conditions"] if c["type"] == "Ready"
        ]
        return result["metadata"]["labels"].get(STATE), ready

    site.until(seen, ("rebooting", ["Unknown", "False"]).__eq__)
    site.until(seen, ("success", ["True", "True"]).__eq__)
    site.offers(node, {"gpu": 0, "mig-1g.5gb": 7})
    site.events(node, "has been rebooted, boot id: 1")
    assert site.get("node", node)["status"]["nodeInfo"]["bootID"] == "1"


def test_another_driver_goes_node_by_node_and_leaves_a_v100_behind(site: Any) -> None:
    label = "nvidia.com/cuda.driver-version.full"
    t4s = (site.node("up-0", "1eb8"), site.node("up-1", "1eb8"))
    for version in ("580.126.09", "595.91.07"):
        site.operator(**{**VALUES, "driver": {"version": version}})
        for name in t4s:
            site.labelled(name, label, version)
    v100 = site.node("up-2", "1db1")
    pods = lambda: json.dumps(site.operands(v100, "nvidia-driver-daemonset"))  # noqa: E731
    site.until(pods, lambda text: "R580 is the last branch that does" in text)
    site.operator(**VALUES)
    for name in (*t4s, v100):
        site.labelled(name, label, "580.126.09")


def ready(site: Any, node: str) -> dict[str, str]:
    conditions = site.get("node", node)["status"].get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == "Ready"), {})


def test_the_charts_default_ends_containerd_until_a_person_mends_it_and_ours_does_not(site: Any) -> None:
    """The last test here: the other nodes stay down as well."""
    site.operator(toolkit={}, mig={"strategy": ""})
    node = site.node("down-0", "1eb8")
    down = site.until(lambda: ready(site, node), lambda found: found.get("status") == "False")
    output = "containerd: drop-in config version 4 higher than root config version 2"
    assert down["message"] == f"container runtime is down: {output}"
    taints = ("get", "node", node, "-o", "jsonpath={.spec.taints[*].key}")
    site.until(lambda: site.kubectl(*taints), lambda found: "node.kubernetes.io/not-ready" in found)
    assert site.operands(node, "nvidia-device-plugin-daemonset") == [] or not site.allocatable(node)

    site.operator(mig={"strategy": ""})
    other = site.node("up-3", "1eb8")
    site.offers(other, {"gpu": 1})
    assert ready(site, other)["status"] == "True"
    assert ready(site, node)["status"] == "False"  # another environment alone does not bring it back
    site.kubectl("annotate", "node", node, f"{keys.RUNTIME_DOWN}-")
    site.offers(node, {"gpu": 1})
    site.until(lambda: ready(site, node), lambda found: found.get("status") == "True")
