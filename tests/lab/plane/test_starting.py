"""First starts: killed half way, two at once, on occupied ports, on broken data."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpuform.checkout.errors import Failure, InputError
from lab.plane import kwokctl, ports, sidecars
from lab.plane.layout import Record
from lab.plane.processes import MEMBERS, scan
from tests.waiting import until

pytestmark = pytest.mark.cluster

START = """
import sys
from pathlib import Path
from lab.plane import ControlPlane
from gpuform.checkout.paths import Paths
from lab.toolchain import Toolchain
here = Paths.here()
paths = Paths(root=here.root, state=Path(sys.argv[1]), cache=here.cache)
ControlPlane(paths, Toolchain(here)).start(simulator=False, progress=lambda line: print(line, flush=True))
"""


def start(cluster) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", START, str(cluster.state)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.nightly
@pytest.mark.parametrize("group", [False, True], ids=["alone", "with kwokctl"])
@pytest.mark.parametrize("member", [None, "etcd", "kube-apiserver", "kube-scheduler"])
def test_a_start_that_is_killed_is_repaired_by_the_next(fresh, member, group):
    """It is killed as soon as this member runs; None: at its first line, just before it changes something."""
    killed = start(fresh)
    assert killed.stdout.readline() == "creating the control plane\n"
    until(lambda: member is None or member in {process.name for process in scan(fresh.layout)})
    (os.killpg if group else os.kill)(killed.pid, signal.SIGKILL)
    killed.wait()
    fresh.start()
    assert set(fresh.pids()) == set(MEMBERS)
    fresh.kubectl("run", "probe", "--image=none")
    fresh.plane.stop()
    assert fresh.pids() == {}


@pytest.mark.nightly
def test_of_two_starts_at_once_the_second_waits_and_finds_it_running(fresh):
    first, second = start(fresh), start(fresh)
    output = sorted(process.communicate(timeout=120)[0].splitlines() for process in (first, second))
    assert (first.returncode, second.returncode) == (0, 0)
    assert output == [["creating the control plane"], ["waiting for another start or stop to end"]]
    assert set(fresh.pids()) == set(MEMBERS)


@pytest.mark.nightly
def test_another_configuration_keeps_data_and_ports(fresh, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(kwokctl, "_etcd_tls", lambda layout, ports: ({}, {}))
        fresh.start()
    fresh.kubectl("create", "configmap", "kept")
    before = {member.name: member.port for member in fresh.plane.status().members}
    fresh.start()
    assert fresh.messages == ["starting the control plane"]
    assert {member.name: member.port for member in fresh.plane.status().members} == before
    assert "configmap/kept" in fresh.kubectl("get", "configmap", "-o", "name")
    fresh.plane.stop()
    fresh.start()
    assert "configmap/kept" in fresh.kubectl("get", "configmap", "-o", "name")


@pytest.mark.nightly
def test_a_port_of_monitoring_that_is_taken_is_replaced_and_no_other(fresh):
    fresh.start()
    before = Record.load(fresh.layout).ports
    assert sidecars.sidecar_ports(fresh.layout) == {name: before[name] for name in ports.SIDECAR_PORTS}
    with socket.create_server(("127.0.0.1", before["prometheus"])):
        after = sidecars.sidecar_ports(fresh.layout)
        assert after["prometheus"] != before["prometheus"]
    assert {**before, "prometheus": after["prometheus"]} == Record.load(fresh.layout).ports
    pids = fresh.pids()
    fresh.start()
    assert fresh.pids() == pids


def test_a_stop_without_a_start_changes_nothing(fresh):
    fresh.plane.stop()
    fresh.plane.stop(delete=True)
    assert not fresh.state.exists()
    assert not fresh.plane.status().running


def test_a_port_that_was_asked_for_and_is_taken_is_refused_before_anything_starts(fresh):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InputError) as refused:
            fresh.start(port=port)
    assert str(refused.value) == (
        f"--port {port}: taken by process {os.getpid()} ({_comm()}); "
        "end that process, or use another port: gpuform local start --port N"
    )
    assert fresh.pids() == {}
    assert not fresh.layout.record.exists()


@pytest.mark.parametrize("port", [0, 80, 65536, -1])
def test_what_is_no_port_is_refused(fresh, port):
    with pytest.raises(InputError) as refused:
        fresh.start(port=port)
    assert str(refused.value) == f"--port {port}: not a port that a user may listen on; use one of 1024-65535"


@pytest.mark.nightly
def test_a_stopped_cluster_with_taken_ports(fresh):
    """The apiserver's port is in kubeconfigs, so the start fails; the others' ports change silently."""
    fresh.start()
    fresh.kubectl("create", "configmap", "kept")
    ports = {member.name: member.port for member in fresh.plane.status().members}
    fresh.plane.stop()
    with socket.create_server(("127.0.0.1", ports["kube-apiserver"])):
        with pytest.raises(InputError) as refused:
            fresh.start()
        assert f"port {ports['kube-apiserver']} of its kubeconfig: taken by process" in str(refused.value)
        assert "gpuform local start --port N" in refused.value.remedy
        assert "gpuform local stop --delete" in refused.value.remedy
        assert fresh.pids() == {}
    with socket.create_server(("127.0.0.1", ports["etcd"])):
        fresh.start()
    moved = {member.name: member.port for member in fresh.plane.status().members}
    assert moved["kube-apiserver"] == ports["kube-apiserver"]
    assert moved["etcd"] != ports["etcd"]
    assert "configmap/kept" in fresh.kubectl("get", "configmap", "-o", "name")


@pytest.mark.nightly
def test_data_beyond_repair_is_said_to_be_so(fresh):
    fresh.start()
    fresh.plane.stop()
    (fresh.layout.etcd / "member" / "snap" / "db").write_bytes(b"no database at all\n" * 10000)
    with pytest.raises(Failure) as failed:
        fresh.start()
    assert "etcd exits as soon as it is started" in failed.value.fact
    assert failed.value.remedy.endswith(
        "to start from scratch, without its data: gpuform local stop --delete"
    )
    assert fresh.pids() == {}
    fresh.plane.stop(delete=True)
    fresh.start()
    assert fresh.plane.status().ready


def _comm() -> str:
    return Path(f"/proc/{os.getpid()}/comm").read_text().strip()
