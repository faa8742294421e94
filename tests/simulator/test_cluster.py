"""The simulator on a real control plane, with plain kubectl and helm: nodes come up and offer what is declared."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "charts" / "gpu-operator-sim"
NAMESPACE = "gpu-operator"
PLUGIN = {
    "whole": "version: v1\n",
    "slice-4": """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
""",
    "any": """\
version: v1
flags: {migStrategy: none}
sharing:
  timeSlicing:
    resources: [{name: nvidia.com/gpu, replicas: 3}]
""",
}
MIG = """\
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  3g.20gb-2x2g.10gb: [{devices: all, mig-enabled: true, mig-devices: {2g.10gb: 2, 3g.20gb: 1}}]
  trap: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2, 1g.5gb: 1}}]
"""
VALUES = {
    "mig": {"strategy": "mixed"},
    "devicePlugin": {"config": {"name": "plugin-config", "default": "whole"}},
    "migManager": {"config": {"name": "mig-config"}},
    "driver": {"version": "580.126.09"},
}
LABEL, MIG_LABEL, STATE = (
    "nvidia.com/device-plugin.config",
    "nvidia.com/mig.config",
    "nvidia.com/mig.config.state",
)
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def config_map(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": data,
    }


def pod_manifest(name: str, **limits: int) -> dict[str, Any]:
    asks = {f"nvidia.com/{key.replace('__', '-').replace('_', '.')}": count for key, count in limits.items()}
    container = {"name": "main", "image": "simulated.gpuform.io/main", "resources": {"limits": asks}}
    toleration = {"key": GPU, "operator": "Exists"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"tolerations": [toleration], "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


class Site:
    """A cluster with the simulated operator installed."""

    def __init__(self, plane: Any) -> None:
        self.plane = plane

    def apply(self, *documents: dict[str, Any]) -> None:
        self.plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.plane.kubectl("get", kind, name, "-n", namespace, "-o", "json")
        )
        return found

    def helm(self, *args: str) -> None:
        command = [str(self.plane.toolchain.path("helm")), "--kubeconfig", str(self.plane.kubeconfig), *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    def node(self, name: str, gpu: str = "", count: int = 1, **labels: str) -> str:
        marks = {
            "kwok.x-k8s.io/node": "fake",
            "simulator.gpuform.io/cpu": "16",
            "simulator.gpuform.io/memory": "64Gi",
        }
        spec: dict[str, Any] = {}
        if gpu:
            marks |= {"simulator.gpuform.io/gpu": f"10de:{gpu}", "simulator.gpuform.io/gpu-count": str(count)}
            spec["taints"] = [{"key": GPU, "value": "true", "effect": "NoSchedule"}]
        chosen = {f"nvidia.com/{key.replace('_', '.')}": value for key, value in labels.items()}
        if "device.plugin.config" in "".join(chosen):
            chosen = {LABEL: next(iter(chosen.values()))}
        meta = {"name": name, "annotations": marks, "labels": {"kubernetes.io/os": "linux", **chosen}}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec})
        return name

    def label(self, node: str, label: str, value: str) -> None:
        self.plane.kubectl("label", "node", node, "--overwrite", f"{label}={value}")

    def labels(self, node: str) -> dict[str, str]:
        labels: dict[str, str] = self.get("node", node)["metadata"]["labels"]
        return labels

    def allocatable(self, node: str) -> dict[str, str]:
        status = self.get("node", node)["status"]
        return {k: v for k, v in status.get("allocatable", {}).items() if k.startswith("nvidia.com/")}

    def offers(self, node: str, **expected: int) -> None:
        wanted = {f"nvidia.com/{k.replace('__', '-').replace('_', '.')}": str(v) for k, v in expected.items()}
        eventually(lambda: self.allocatable(node), lambda found: found == wanted)

    def operand(self, node: str, app: str) -> dict[str, Any]:
        selector = ["-l", f"app={app}", "--field-selector", f"spec.nodeName={node}"]
        found = json.loads(self.plane.kubectl("get", "pods", "-n", NAMESPACE, *selector, "-o", "json"))
        assert len(found["items"]) == 1, found["items"]
        pod: dict[str, Any] = found["items"][0]
        return pod

    def phase(self, pod: str, expected: str) -> dict[str, Any]:
        found = eventually(lambda: self.get("pod", pod), lambda p: p["status"].get("phase") == expected)
        return dict(found)

    def events(self, name: str, namespace: str = "default") -> str:
        selector = f"involvedObject.name={name}"
        found = json.loads(
            self.plane.kubectl("get", "events", "-n", namespace, "--field-selector", selector, "-o", "json")
        )
        return "\n".join(event["message"] for event in found["items"])


def eventually(look: Callable[[], Any], good: Callable[[Any], bool], seconds: float = 30) -> Any:
    """The first good look; the last look is in the failure's message."""
    end = time.monotonic() + seconds
    while not good(found := look()):
        assert time.monotonic() < end, f"after {seconds} s: {found}"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def site(simulated_plane: Any) -> Iterator[Site]:
    site = Site(simulated_plane)
    site.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        config_map("plugin-config", PLUGIN),
        config_map("mig-config", {"config.yaml": MIG}),
    )
    site.node("cpu-0")
    values = site.plane.paths.state / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    site.helm(
        "upgrade", "--install", "gpu-operator", str(CHART), "-n", NAMESPACE, "-f", str(values), "--wait"
    )
    yield site
    site.plane.kubectl("delete", "pods", "--all", "-n", "default", "--wait=false")
    site.helm("uninstall", "gpu-operator", "-n", NAMESPACE, "--wait")
    site.plane.kubectl("delete", "nodes", "--all", "--wait=false")
    site.plane.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


def test_cern_time_slicing_slice_4(site: Site) -> None:
    node = site.node("t4-0", "1eb8", device_plugin_config="slice-4")
    site.offers(node, gpu_shared=4)
    assert GPU not in site.get("node", node)["status"]["capacity"]
    labels = eventually(lambda: site.labels(node), lambda found: "nvidia.com/gpu.product" in found)
    assert labels["nvidia.com/gpu.product"] == "Tesla-T4"
    assert labels["nvidia.com/gpu.memory"] == "15360"
    assert labels["nvidia.com/cuda.driver-version.full"] == "580.126.09"


def test_cern_two_slices_are_refused_one_is_given(site: Site) -> None:
    site.offers(site.node("t4-0", "1eb8", device_plugin_config="slice-4"), gpu_shared=4)
    site.apply(pod_manifest("greedy", gpu_shared=2), pod_manifest("modest", gpu_shared=1))
    refused = site.phase("greedy", "Failed")["status"]
    assert refused["reason"] == "UnexpectedAdmissionError"
    assert "maximum request size for shared resources is 1; found 2" in refused["message"]
    running = site.phase("modest", "Running")
    assert running["metadata"]["annotations"]["simulator.gpuform.io/devices"].endswith("::0")
    site.plane.kubectl("delete", "pod", "greedy", "modest")


def test_cern_operands_run_and_the_cuda_job_completes(site: Site) -> None:
    site.offers(site.node("t4-0", "1eb8", device_plugin_config="slice-4"), gpu_shared=4)
    for app in (
        "nvidia-driver-daemonset",
        "nvidia-container-toolkit-daemonset",
        "nvidia-device-plugin-daemonset",
        "gpu-feature-discovery",
        "nvidia-dcgm-exporter",
        "nvidia-operator-validator",
    ):
        phase = eventually(lambda app=app: site.operand("t4-0", app)["status"]["phase"], "Running".__eq__)
        assert phase == "Running"
    assert site.operand("t4-0", "nvidia-cuda-validator")["status"]["phase"] == "Succeeded"


def test_cern_v100_whole_and_cpu_node_without_gpus(site: Site) -> None:
    site.offers(site.node("v100-0", "1db1", 4), gpu=4)
    assert site.allocatable("cpu-0") == {}
    assert "nvidia.com/gpu.present" not in site.labels("cpu-0")


def test_cisco_time_slicing_any_not_renamed(site: Site) -> None:
    node = site.node("g4dn-0", "1eb8", device_plugin_config="any")
    site.offers(node, gpu=3)
    eventually(lambda: site.labels(node).get("nvidia.com/gpu.product"), "Tesla-T4-SHARED".__eq__)


def test_cern_mig_mixed(site: Site) -> None:
    node = site.node("mig-0", "20b0")
    site.offers(node, gpu=1)
    eventually(lambda: site.labels(node).get(STATE), "success".__eq__)
    site.label(node, MIG_LABEL, "3g.20gb-2x2g.10gb")
    site.offers(node, gpu=0, mig__3g_20gb=1, mig__2g_10gb=2)
    eventually(lambda: site.labels(node).get(STATE), "success".__eq__)
    site.apply(pod_manifest("simulation", mig__3g_20gb=1))
    site.phase("simulation", "Running")


def test_bumble_refuses_to_cut_a_gpu_in_use_then_all_1g5gb(site: Site) -> None:
    node = site.node("mig-1", "20f1")
    site.offers(node, gpu=1)
    site.plane.kubectl("cordon", "v100-0")
    site.apply(
        pod_manifest("busy", gpu=1) | {"spec": {**pod_manifest("busy", gpu=1)["spec"], "nodeName": node}}
    )
    site.phase("busy", "Running")
    site.label(node, MIG_LABEL, "all-1g.5gb")
    eventually(lambda: site.labels(node).get(STATE), "failed".__eq__)
    assert "In use by another client: default/busy" in eventually(lambda: site.events(node), bool)
    site.offers(node, gpu=1)
    site.plane.kubectl("delete", "pod", "busy")
    site.label(node, MIG_LABEL, "all-disabled")
    eventually(lambda: site.labels(node).get(STATE), "success".__eq__)
    site.label(node, MIG_LABEL, "all-1g.5gb")
    site.offers(node, gpu=0, mig__1g_5gb=7)
    site.plane.kubectl("uncordon", "v100-0")


@pytest.mark.parametrize(
    ("name", "why"),
    [("trap", "does not fit into the placements"), ("all-9g.5gb", "selected mig-config not present")],
)
def test_layout_that_cannot_be_fails_and_the_old_one_stays(site: Site, name: str, why: str) -> None:
    node = site.node("mig-2", "20b0")
    site.offers(node, gpu=1)
    eventually(lambda: site.labels(node).get(STATE), "success".__eq__)
    site.label(node, MIG_LABEL, name)
    eventually(lambda: site.labels(node).get(STATE), "failed".__eq__)
    eventually(lambda: site.events(node), lambda text: why in text)
    site.offers(node, gpu=1)
    site.label(node, MIG_LABEL, "all-disabled")


def test_unknown_label_crash_loops_and_the_right_one_recovers(site: Site) -> None:
    node = site.node("typo-0", "1eb8", device_plugin_config="slice-9")
    app = "nvidia-device-plugin-daemonset"
    eventually(lambda: site.labels(node).get("nvidia.com/gpu.present"), bool)

    def crash() -> str:
        pods = json.loads(
            site.plane.kubectl(
                "get",
                "pods",
                "-n",
                NAMESPACE,
                "-l",
                f"app={app}",
                "--field-selector",
                f"spec.nodeName={node}",
                "-o",
                "json",
            )
        )["items"]
        return json.dumps([pod["status"] for pod in pods])

    eventually(crash, lambda text: "CrashLoopBackOff" in text)
    pod = site.operand(node, app)["metadata"]["name"]
    told = eventually(lambda: site.events(pod, NAMESPACE), bool)
    assert "specified config slice-9 does not exist" in told
    assert site.allocatable(node) == {}
    site.label(node, LABEL, "slice-4")
    site.offers(node, gpu_shared=4)
    site.label(node, LABEL, "nonsense")
    site.offers(node, gpu_shared=0)
    site.label(node, LABEL, "whole")
    site.offers(node, gpu=1, gpu_shared=0)


def test_operand_gone_nothing_offered_and_a_roll_keeps_allocations(site: Site) -> None:
    node = site.node("roll-0", "1eb8", device_plugin_config="slice-4")
    site.offers(node, gpu_shared=4)
    manifest = pod_manifest("keeps", gpu_shared=1)
    manifest["spec"]["nodeName"] = node
    site.apply(manifest)
    given = site.phase("keeps", "Running")["metadata"]["annotations"]["simulator.gpuform.io/devices"]
    site.label(node, "nvidia.com/gpu.deploy.device-plugin", "false")
    site.offers(node, gpu_shared=0)
    assert site.get("node", node)["status"]["capacity"][SHARED] == "4"
    site.label(node, "nvidia.com/gpu.deploy.device-plugin", "true")
    site.offers(node, gpu_shared=4)
    kept = site.get("pod", "keeps")
    assert kept["status"]["phase"] == "Running"
    assert kept["metadata"]["annotations"]["simulator.gpuform.io/devices"] == given
    site.plane.kubectl("delete", "pod", "keeps")


def test_edited_config_map_changes_nothing(site: Site) -> None:
    node = site.node("edit-0", "1eb8", device_plugin_config="slice-4")
    site.offers(node, gpu_shared=4)
    site.apply(config_map("plugin-config", {**PLUGIN, "slice-4": PLUGIN["slice-4"].replace("4", "8")}))
    time.sleep(2)
    assert site.allocatable(node) == {SHARED: "4"}
    site.apply(config_map("plugin-config", PLUGIN))
