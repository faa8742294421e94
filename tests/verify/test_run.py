"""A complete run of the checks: here with played GPU tools, in pods, and of nodes at a real API server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.hosts.verify import Report, verify
from gpuform.reports import hosts as tables

if TYPE_CHECKING:
    from tests.conftest import Plane

pytestmark = pytest.mark.tools

Variables = Mapping[str, Mapping[str, Any]]
UUID = "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
PROGRAMS = {
    "nvidia-smi": f'case "$*" in -L) echo "GPU 0: Tesla T4 (UUID: {UUID})";; '
    f'*) echo "0, {UUID}, Tesla T4, 580.95.05, Enabled, [N/A]";; esac',
    "lsmod": r'printf "Module Size Used by\nnvidia_uvm 1 0\nnvidia 1 1 nvidia_uvm\n"',
    "modinfo": 'echo "Dual MIT/GPL"',
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    for name, body in PROGRAMS.items():
        program(folder / name, body)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def program(path: Path, body: str) -> None:
    write(path, f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def run(*hosts: str, limit: tuple[str, ...] = (), of: Variables | None = None, **variables: Any) -> Report:
    """``of`` has variables of single hosts, ``variables`` are those of all."""
    own = {
        "ansible_connection": "local",
        "gpuform_pool": "t4",
        "nvidia_driver_version": "580.95.05",
        "nvidia_driver_modules": "open",
        "nvidia_driver_product": "Tesla T4",
        "nvidia_driver_count": 1,
        **variables,
    }
    hostvars = {host: {**own, **(of or {}).get(host, {})} for host in hosts}
    return verify({"_meta": {"hostvars": hostvars}}, stack="lab", limit=limit)


def found(report: Report, host: str = "n1") -> dict[str, str]:
    return {one.check: one.fact or one.verdict for one in report.verdicts if one.host == host}


def test_every_check_of_every_host_has_a_verdict(programs: Path) -> None:
    """In two processes; in the end as tables with a line per check and a column per host."""
    others = {
        "few": {"nvidia_driver_count": 2, "nvidia_driver_product": "NVIDIA L4"},
        "none": {"nvidia_driver_count": 0},
    }
    report = run("one", "two", "three", "four", "five", "six", *others, of=others)
    assert report.hosts == ("few", "five", "four", "none", "one", "six", "three", "two")
    for host in set(report.hosts) - set(others):
        verdicts = found(report, host)
        assert list(verdicts) == list(report.checks)
        for check in ("reachable", "gpus", "driver_version", "modules", "nouveau", "persistence", "mig"):
            assert verdicts[check] == "PASS", check
        assert adapter_checks(report, host) == dict.fromkeys(RDMA_CHECKS, "no RDMA adapters are declared")
    assert report.checks[0] == "reachable"
    assert found(report, "few")["gpus"] == "nvidia-smi lists 1x Tesla T4; 2x NVIDIA L4 is declared"
    without = found(report, "none")
    assert without["reachable"] == "PASS"
    assert {without[check] for check in ("gpus", "modules", "runtime", "mig")} == {"the host has no GPUs"}
    shown = list(tables.check_tables(report))
    assert [len(table.columns) for table in shown] == [7, 3]
    assert str(next(iter(shown[0].columns[0].cells))) == "reachable"


def test_a_finding_has_its_fact_and_remedy(programs: Path) -> None:
    program(
        programs / "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    )
    program(programs / "lsmod", r'printf "Module Size Used by\nnouveau 1 0\n"')
    report = run("one")
    assert not report.ok
    one = report.to_json()["hosts"]["one"]
    assert not one["ok"]
    assert one["checks"]["driver_version"] == {
        "verdict": "FAIL",
        "fact": "nvidia-smi ends with 18: Failed to initialize NVML: Driver/library version mismatch",
        "remedy": "reboot the host: the kernel still runs the driver before the upgrade, "
        "or run `gpuform hosts apply lab`",
    }
    assert one["checks"]["modules"]["fact"] == "not loaded: nvidia, nvidia_uvm"
    assert one["checks"]["nouveau"]["fact"] == "nouveau is loaded"
    lines = list(tables.failure_lines(report))
    assert (
        "one: nouveau: nouveau is loaded; "
        "run `gpuform hosts apply lab`, which blacklists it, and reboot the host" in lines
    )


@pytest.fixture
def fabric(programs: Path, tmp_path: Path) -> Path:
    """A played /sys, as `grep` and `cat` find it: two adapters for training, one without a cable."""
    adapters = (("mlx5_0", "ibp24s0"), ("mlx5_1", "ibp64s0"), ("mlx5_2", "ens1"))
    for name, interface in adapters:
        folder = tmp_path / "sys/class/infiniband" / name
        port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
        if name == "mlx5_2":
            port = {"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "40 Gb/sec (4X QDR)"}
        port["link_layer"] = "Ethernet" if name == "mlx5_2" else "InfiniBand"
        files = {f"ports/1/{key}": value for key, value in port.items()}
        files |= {"board_id": "MT_0000000838", "fw_ver": "28.39.1002", "device/vendor": "0x15b3"}
        files |= {f"device/net/{interface}/ifindex": "2"}
        for key, value in files.items():
            write(folder / key, f"{value}\n")
    write(tmp_path / "sys/module/ib_core/parameters/netns_mode", "Y\n")
    elsewhere = f'files=""; set -f; for one in "$@"; do files="$files {tmp_path}$one"; done; set +f'
    grep = f'shift 2; {elsewhere}; /usr/bin/grep -sH "" $files | sed "s#^{tmp_path}##"'
    for name, played in (("grep", grep), ("cat", f"{elsewhere}; /bin/cat $files")):
        program(programs / name, f'case "$*" in */sys/*) {played};; *) exec /usr/bin/{name} "$@";; esac')
    return tmp_path / "sys/class/infiniband"


RDMA_CHECKS = ("rdma_links", "rdma_firmware", "rdma_netns", "rdma_gpudirect")
TRAINING = {"gpuform_rdma": {"link_type": "infiniband"}}


def adapter_checks(report: Report, host: str = "one") -> dict[str, str]:
    return {
        name: fact for name, fact in found(report, host).items() if name.startswith("rdma") and fact != "PASS"
    }


def test_adapters_that_are_selected_are_fine(fabric: Path) -> None:
    selected = {
        "one": {"link_type": "infiniband"},
        "two": {"interfaces": ["ibp24s0", "ibp64s0"]},
        "missing": {"interfaces": ["ibp24s0", "ibp79s0"]},
    }
    report = run(*selected, of={host: {"gpuform_rdma": rdma} for host, rdma in selected.items()})
    assert adapter_checks(report, "one") == {}
    assert adapter_checks(report, "two") == {}
    there = "mlx5_0 port 1 (ibp24s0) InfiniBand, mlx5_1 port 1 (ibp64s0) InfiniBand, mlx5_2 port 1 (ens1)"
    missing = adapter_checks(report, "missing")["rdma_links"]
    assert missing == f"no RDMA adapter of ibp79s0; there are {there} Ethernet"


FIRMWARES = "adapters of board MT_0000000838 have several firmwares: mlx5_0 28.36.1010; mlx5_1 28.39.1002"
RATES = "ports have several rates: mlx5_1 port 1 (ibp64s0) 100 Gb/sec (1X NDR); mlx5_0 port 1 (ibp24s0)"
NETNS = "../../module/ib_core/parameters/netns_mode"


@pytest.mark.parametrize(
    "faults",
    [  # of each run, faults that several checks find
        {
            "mlx5_0/ports/1/state": (
                "2: INIT",
                "rdma_links",
                "mlx5_0 port 1 (ibp24s0) is 2: INIT: its link is up",
            ),
            "mlx5_0/fw_ver": ("28.36.1010", "rdma_firmware", FIRMWARES),
            NETNS: ("N", "rdma_netns", "ib_core's netns_mode is N: no pod sees"),
        },
        {"mlx5_1/ports/1/state": ("1: DOWN", "rdma_links", "mlx5_1 port 1 (ibp64s0) is 1: DOWN, its link 5")},
        {"mlx5_1/ports/1/rate": ("100 Gb/sec (1X NDR)", "rdma_links", RATES)},
    ],
    ids=["three", "down", "rates"],
)
def test_each_fault_of_an_adapter_is_found(fabric: Path, faults: dict[str, tuple[str, str, str]]) -> None:
    for file, (text, _, _) in faults.items():
        write(fabric / file, f"{text}\n")
    said = adapter_checks(run("one", **TRAINING))
    assert set(said) == {check for _, check, _ in faults.values()}
    for _, check, fact in faults.values():
        assert said[check].startswith(fact)


def test_adapters_of_others_are_not_meant(fabric: Path) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        write(fabric / name / "device/vendor", "0x8086\n")
    assert adapter_checks(run("one", **TRAINING))["rdma_firmware"].startswith(
        "no RDMA adapter of NVIDIA with link layer Infini"
    )


def test_gpu_memory_is_reached_by_dma_buf_or_peermem(fabric: Path, programs: Path) -> None:
    program(programs / "modinfo", "echo NVIDIA")
    fact = adapter_checks(run("one", nvidia_driver_modules="proprietary", **TRAINING))["rdma_gpudirect"]
    assert fact.startswith("nvidia_peermem is not loaded, and modules of licence 'NVIDIA' on kernel ")
    program(programs / "modinfo", PROGRAMS["modinfo"])
    program(programs / "uname", "echo 5.4.0-216-generic")
    assert (
        "on kernel 5.4.0-216-generic have no DMA-BUF"
        in adapter_checks(run("one", **TRAINING))["rdma_gpudirect"]
    )
    program(programs / "lsmod", f"{PROGRAMS['lsmod']}; echo nvidia_peermem 1 0")
    assert adapter_checks(run("one", **TRAINING)) == {}


def test_a_host_out_of_reach_fails_once(tmp_path: Path) -> None:
    ssh = {
        "ansible_connection": "ssh",
        "ansible_host": "127.0.0.1",
        "ansible_port": 1,
        "ansible_user": "root",
    }
    report = run("one", **ssh)
    assert not report.ok
    failed = [(one.check, one.fact, one.remedy) for one in report.verdicts if one.verdict == "FAIL"]
    assert failed == [
        (
            "reachable",
            "ssh: connect to host 127.0.0.1 port 1: Connection refused",
            "check that 127.0.0.1 is up and that ssh takes its key and yours: `ssh -p 1 root@127.0.0.1 true`",
        )
    ]


def test_limit_selects_hosts(programs: Path) -> None:
    assert run("one", "two", limit=("two",)).hosts == ("two",)
    with pytest.raises(InputError, match="--limit: no host or group 'three'; known: one, two"):
        run("one", "two", limit=("three",))


def test_no_host_is_a_failure() -> None:
    with pytest.raises(Failure, match="has no hosts"):
        run()


KUBECTL = """\
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
    "spec": {"taints": [TAINT]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def pods(name: str, node: str = "n1", phase: str = "Running") -> str:
    pod = {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}}
    return json.dumps({"items": [pod]})


@pytest.fixture
def cluster(tmp_path: Path, programs: Path) -> Path:
    """A folder with the cluster's answers; its kubeconfig has a blank in its path."""
    program(programs / "kubectl", KUBECTL % {"folder": tmp_path})
    toolkit = tmp_path / "usr/local/nvidia/toolkit"
    ctk = f'case "$*" in *list*) echo nvidia.com/gpu={UUID};; *) echo "CLI version 1.20.0";; esac'
    program(toolkit / "nvidia-ctk", ctk)
    guard = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
    write(toolkit / ".config/nvidia-container-runtime/config.toml", guard)
    write(tmp_path / "runtime/config-dir/config.toml", CONTAINERD)
    write(tmp_path / "runtime/config-dir/conf.d/99-nvidia.toml", NVIDIA)
    write(tmp_path / "nodes.json", json.dumps({"items": [NODE]}))
    write(tmp_path / "driver.json", pods("driver-x"))
    write(tmp_path / "toolkit.json", pods("toolkit-x"))
    return tmp_path


def run_in_pods(cluster: Path) -> Report:
    variables = {
        "gpuform_pool": "t4",
        "gpuform_kubeconfig": str(cluster / "kube config"),
        "gpuform_context": "admin@lab",
        "gpuform_labels": {"gpuform.io/pool": "t4"},
        "gpuform_taints": [TAINT],
        "gpuform_mig": {"all": {}},
        "validate_inventory_gpu": {"model": "T4", "product": "Tesla T4", "count": 1},
        "nvidia_driver_version": "580.95.05",
        "nvidia_driver_modules": "open",
        "nvidia_container_toolkit_version": "1.20.0",
        "nvidia_container_toolkit_mode": "cdi",
    }
    return verify({"_meta": {"hostvars": {"n1": variables}}}, stack="lab", backend="kubectl")


def test_operator_pods_are_checked_for_what_they_see(cluster: Path) -> None:
    facts = found(run_in_pods(cluster))
    on_host = "seen on the host itself only, not from a pod"
    assert facts == {
        **dict.fromkeys(("reachable", "gpus", "driver_version", "modules", "nouveau", "persistence"), "PASS"),
        **dict.fromkeys(("toolkit_version", "runtime", "cdi", "no_gpu_without_request"), "PASS"),
        **dict.fromkeys(("kubelet", "labels", "taints", "mig", "mig_state"), "PASS"),
        **dict.fromkeys(
            ("driver_packages", "fabricmanager", "held", "units", "time_sync", "cuda", "distribution"),
            on_host,
        ),
        **dict.fromkeys(("toolkit_packages", "device_links"), on_host),
        **dict.fromkeys(RDMA_CHECKS, "no RDMA adapters are declared"),
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
    facts = found(run_in_pods(cluster))
    assert facts["kubelet"] == "the node is not ready: no network"
    assert facts["labels"] == "label gpuform.io/pool is 'a100'; planned: gpuform.io/pool=t4"
    assert facts["taints"] == "taint nvidia.com/gpu=true:NoSchedule is missing; the node has none"
    assert facts["mig_state"] == "the node's nvidia.com/mig.config.state is 'failed'"


def test_a_runtime_without_its_own_program_is_found(cluster: Path) -> None:
    write(cluster / "runtime/config-dir/config.toml", CONTAINERD.replace(".runc", ".mine"))
    assert (
        found(run_in_pods(cluster))["runtime"]
        == "containerd has lost its own runtime: only mine, nvidia is left"
    )


def test_a_node_without_pods_is_out_of_reach(cluster: Path) -> None:
    write(cluster / "driver.json", pods("driver-x", node="n2"))
    write(cluster / "toolkit.json", pods("toolkit-x", phase="Pending"))
    (failed,) = [one for one in run_in_pods(cluster).verdicts if one.verdict == "FAIL"]
    assert (failed.check, failed.fact, failed.remedy) == (
        "reachable",
        "neither nvidia-driver-daemonset nor nvidia-container-toolkit-daemonset has a running pod on n1",
        "see `kubectl -n gpu-operator get pods -o wide`",
    )


def test_a_host_prepared_by_us_has_no_driver_pod_and_that_is_said(cluster: Path) -> None:
    write(cluster / "driver.json", json.dumps({"items": []}))
    facts = found(run_in_pods(cluster))
    assert facts["gpus"] == "no running pod of nvidia-driver-daemonset"
    assert facts["toolkit_version"] == "PASS"


def node_text(name: str, labels: dict[str, str], taints: list[dict[str, str]]) -> str:
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}})


@pytest.mark.cluster
def test_labels_and_taints_are_those_of_the_pool(control_plane: Plane) -> None:
    for text in (node_text("own-1", {"gpuform.io/pool": "t4"}, [TAINT]), node_text("own-2", {}, [])):
        control_plane.kubectl("create", "-f", "-", input=text)
    variables: dict[str, Any] = {
        "ansible_connection": "local",
        "gpuform_pool": "t4",
        "gpuform_kubeconfig": str(control_plane.kubeconfig),
        "gpuform_labels": {"gpuform.io/pool": "t4"},
        "gpuform_taints": [TAINT],
    }
    hosts = dict.fromkeys(("own-1", "own-2", "own-3"), variables)
    kubectl = control_plane.toolchain.path("kubectl")
    try:
        report = verify({"_meta": {"hostvars": hosts}}, stack="own", kubectl=kubectl)
    finally:
        control_plane.kubectl("delete", "node", "own-1", "own-2")
    verdicts = {(one.host, one.check): (one.verdict, one.fact, one.remedy) for one in report.verdicts}
    for check in ("labels", "taints"):
        assert verdicts["own-1", check] == ("PASS", "", "")
        assert verdicts["own-3", check] == ("SKIP", "has not joined the cluster", "")
    mend = "run `gpuform hosts apply own`"
    missing = "label gpuform.io/pool is missing; planned: gpuform.io/pool=t4"
    assert verdicts["own-2", "labels"] == ("FAIL", missing, mend)
    bare = "taint nvidia.com/gpu=true:NoSchedule is missing; the node has none"
    assert verdicts["own-2", "taints"][0] == "FAIL"
    assert verdicts["own-2", "taints"][1].startswith(bare[:50])
    assert verdicts["own-1", "kubelet"] == (
        "FAIL",
        "no kubelet runs on the host, which has joined a cluster",
        "see `journalctl -u kubelet`, then `systemctl restart kubelet` (k3s-agent, rke2-agent)",
    )
