"""The same checks in the pods of NVIDIA's operator: a played kubectl runs a pod's commands here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuform.hosts.verify import Report, verify

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
UUID = "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
KUBECTL = """\
#!/bin/sh
# Plays kubectl: lists from files, and a pod's folders below the test's own.
echo "$KUBECONFIG $*" >>%(folder)s/calls
while [ $# -gt 0 ]; do
    case "$1" in
        --kubeconfig=* | --context=*) shift ;;
        get) case "$*" in *nodes*) cat %(folder)s/nodes.json ;; *driver*) cat %(folder)s/driver.json ;;
             *) cat %(folder)s/toolkit.json ;; esac; exit ;;
        --) shift 3; places='s#/usr/local/nvidia#%(folder)s&#g; s#/runtime/#%(folder)s&#g'
            exec sh -c "$(echo "$1" | sed "$places")" ;;
        *) shift ;;
    esac
done
"""
SMI = (
    f'case "$*" in -L) echo "GPU 0: Tesla T4 (UUID: {UUID})";; '
    f'*) echo "0, {UUID}, Tesla T4, 595.91.07, Enabled, [N/A]";; esac'
)
CONTAINERD = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
NVIDIA = """\
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
"""
NODE: dict[str, Any] = {
    "metadata": {
        "name": "n1",
        "labels": {
            "gpuform.io/pool": "t4",
            "kubernetes.io/hostname": "n1",
            "nvidia.com/mig.config.state": "success",
        },
    },
    "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def pods(name: str, node: str = "n1", phase: str = "Running") -> str:
    pod = {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}}
    return json.dumps({"items": [pod]})


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the cluster's answers; its kubeconfig has a blank in its path."""
    programs = {"kubectl": KUBECTL % {"folder": tmp_path}, "nvidia-smi": f"#!/bin/sh\n{SMI}\n"}
    programs["lsmod"] = "#!/bin/sh\nprintf 'Module\\nnvidia_uvm 1 0\\nnvidia 1 1\\n'\n"
    programs["modinfo"] = "#!/bin/sh\necho 'Dual MIT/GPL'\n"
    for name, text in programs.items():
        write(tmp_path / "bin" / name, text)
    toolkit = tmp_path / "usr/local/nvidia/toolkit"
    ctk = f'case "$*" in *list*) echo nvidia.com/gpu={UUID};; *) echo "CLI version 1.20.0";; esac'
    write(toolkit / "nvidia-ctk", f"#!/bin/sh\n{ctk}\n")
    guard = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
    write(toolkit / ".config/nvidia-container-runtime/config.toml", guard)
    write(tmp_path / "runtime/config-dir/config.toml", CONTAINERD)
    write(tmp_path / "runtime/config-dir/conf.d/99-nvidia.toml", NVIDIA)
    write(tmp_path / "nodes.json", json.dumps({"items": [NODE]}))
    write(tmp_path / "driver.json", pods("driver-x"))
    write(tmp_path / "toolkit.json", pods("toolkit-x"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def run(cluster: Path) -> Report:
    variables = {
        "gpuform_pool": "t4",
        "gpuform_kubeconfig": str(cluster / "kube config"),
        "gpuform_context": "admin@lab",
        "gpuform_labels": {"gpuform.io/pool": "t4"},
        "gpuform_taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
        "gpuform_mig": {},
        "validate_inventory_gpu": {"model": "T4", "product": "Tesla T4", "count": 1},
        "nvidia_driver_version": "595.91.07",
        "nvidia_driver_modules": "open",
        "nvidia_container_toolkit_version": "1.20.0",
        "nvidia_container_toolkit_mode": "cdi",
    }
    return verify({"_meta": {"hostvars": {"n1": variables}}}, ROOT, stack="lab", backend="kubectl")


def found(report: Report) -> dict[str, str]:
    return {one.check: one.fact or one.verdict for one in report.verdicts}


def test_what_a_pod_sees_is_checked_there(cluster: Path) -> None:
    facts = found(run(cluster))
    on_host = "seen on the host itself only, not from a pod"
    assert facts == {
        **dict.fromkeys(("reachable", "gpus", "driver_version", "modules", "nouveau", "persistence"), "PASS"),
        **dict.fromkeys(("toolkit_version", "runtime", "cdi", "no_gpu_without_request"), "PASS"),
        **dict.fromkeys(("kubelet", "labels", "taints", "mig", "mig_state"), "PASS"),
        **dict.fromkeys(("driver_packages", "fabricmanager", "held", "units", "time_sync", "cuda"), on_host),
        **dict.fromkeys(("toolkit_packages", "device_links"), on_host),
    }
    calls = (cluster / "calls").read_text()
    assert f"{cluster}/kube config" in calls
    assert "-c nvidia-driver-ctr exec driver-x -- /bin/sh -c" in calls
    assert "-c nvidia-container-toolkit-ctr exec toolkit-x -- /bin/sh -c" in calls


def test_the_node_is_compared_with_its_pool(cluster: Path) -> None:
    node = {
        "metadata": {
            "name": "n1",
            "labels": {"gpuform.io/pool": "a100", "nvidia.com/mig.config.state": "failed"},
        },
        "status": {"conditions": [{"type": "Ready", "status": "False", "message": "no network"}]},
    }
    write(cluster / "nodes.json", json.dumps({"items": [node]}))
    facts = found(run(cluster))
    assert facts["kubelet"] == "the node is not ready: no network"
    assert facts["labels"] == "label gpuform.io/pool is 'a100'; planned: gpuform.io/pool=t4"
    assert facts["taints"] == "taint nvidia.com/gpu=true:NoSchedule is missing; the node has none"
    assert facts["mig_state"] == "the node's nvidia.com/mig.config.state is 'failed'"


def test_a_runtime_without_its_own_program_is_found(cluster: Path) -> None:
    write(cluster / "runtime/config-dir/config.toml", CONTAINERD.replace(".runc", ".mine"))
    assert found(run(cluster))["runtime"] == "containerd has lost its own runtime: only mine, nvidia is left"


def test_a_node_without_pods_is_out_of_reach(cluster: Path) -> None:
    write(cluster / "driver.json", pods("driver-x", node="n2"))
    write(cluster / "toolkit.json", pods("toolkit-x", phase="Pending"))
    (failed,) = [one for one in run(cluster).verdicts if one.verdict == "FAIL"]
    assert (failed.check, failed.fact, failed.remedy) == (
        "reachable",
        "neither nvidia-driver-daemonset nor nvidia-container-toolkit-daemonset has a running pod on n1",
        "see `kubectl -n gpu-operator get pods -o wide`",
    )


def test_a_host_prepared_by_us_has_no_driver_pod_and_that_is_said(cluster: Path) -> None:
    write(cluster / "driver.json", json.dumps({"items": []}))
    facts = found(run(cluster))
    assert facts["gpus"] == "no running pod of nvidia-driver-daemonset"
    assert facts["toolkit_version"] == "PASS"
