"""Start, repair, stop: on one control plane that these tests kill repeatedly."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import signal
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra import versions
from lab.plane import starting
from lab.plane.layout import Record
from lab.plane.ports import is_free
from lab.plane.processes import MEMBERS, scan
from tests.lab.plane.conftest import removed
from tests.ports import free_port
from tests.tiers import nightly_but
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def plane(own):
    own.start()
    if "kept" not in own.kubectl("get", "configmap", "-o", "name"):
        own.kubectl("create", "configmap", "kept", "--from-literal=a=b")
    return own


def holds_its_data(plane) -> bool:
    return plane.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"


def works(plane) -> bool:
    """Every member runs once and the API accepts a pod."""
    plane.kubectl("run", "probe", "--image=none", "--dry-run=server")
    return set(plane.pids()) == set(MEMBERS)


@pytest.mark.parametrize("member", nightly_but("kube-apiserver", {name: name for name in MEMBERS}))
def test_a_killed_member_is_started_again(plane, member):
    before = plane.pids()
    plane.kill(member)
    assert set(plane.pids()) == set(MEMBERS) - {member}
    plane.start()
    after = plane.pids()
    assert works(plane)
    assert holds_its_data(plane)
    assert after[member] != before[member]


def test_all_members_killed_at_once_come_back(plane):
    """Pods start at once on simulated nodes, too: the leases of the former kwok do not count any more."""
    marks = {"name": "simulated", "annotations": {"kwok.x-k8s.io/node": "fake"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": marks}
    plane.kubectl("apply", "-f", "-", input=json.dumps(node))
    until(lambda: "simulated" in plane.kubectl("get", "leases", "-n", "kube-node-lease", "-o", "name"))
    plane.kill(*MEMBERS)
    assert plane.pids() == {}
    plane.start()
    assert works(plane)
    assert holds_its_data(plane)
    plane.kubectl("run", "new", "--image=none", "--overrides", '{"spec": {"nodeName": "simulated"}}')
    phase = ["get", "pod", "new", "-o", "jsonpath={.status.phase}"]
    until(lambda: plane.kubectl(*phase) == "Running")


def test_a_stop_keeps_data_port_and_kubeconfig(plane):
    kubeconfig, server = plane.paths.kubeconfig.read_text(), plane.plane.status().server
    plane.plane.stop()
    assert plane.pids() == {}
    assert is_free(int(server.rpartition(":")[2]))
    status = plane.plane.status()
    assert (status.ready, status.kubernetes) == (False, None)
    assert all(member.pid is None and member.rss_bytes == 0 for member in status.members)
    plane.start()
    assert plane.paths.kubeconfig.read_text() == kubeconfig
    assert plane.plane.status().server == server
    assert holds_its_data(plane)


@pytest.mark.nightly
def test_a_process_id_file_that_names_a_foreign_process_is_ignored(plane):
    """kwokctl alone would take the foreign process for the scheduler, and kill it."""
    stranger = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        plane.kill("kube-scheduler")
        (plane.layout.workdir / "pids" / "kube-scheduler.pid").write_text(str(stranger))
        plane.start()
        assert works(plane)
        (plane.layout.workdir / "pids" / "kube-scheduler.pid").write_text(str(stranger))
        plane.plane.stop()
        assert os.waitpid(stranger, os.WNOHANG) == (0, 0)
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)


@pytest.mark.nightly
def test_members_that_run_but_do_not_answer_are_started_anew(plane, monkeypatch):
    monkeypatch.setattr(starting, "UNRESPONSIVE_SECONDS", 1.0)
    before = plane.pids()
    os.kill(before["kube-apiserver"], signal.SIGSTOP)
    plane.start()
    assert "does not answer" in plane.messages[0]
    assert works(plane)
    assert holds_its_data(plane)
    assert before["kube-apiserver"] not in plane.pids().values()


@pytest.mark.nightly
def test_another_port_moves_the_cluster_with_its_data(plane):
    old = plane.plane.status().server
    port = free_port()
    plane.start(port=port)
    assert plane.plane.status().server == f"https://127.0.0.1:{port}" != old
    assert f"https://127.0.0.1:{port}" in plane.paths.kubeconfig.read_text()
    assert holds_its_data(plane)
    assert is_free(int(old.rpartition(":")[2]))
    before, written = plane.pids(), plane.paths.kubeconfig.stat().st_mtime_ns
    plane.start()
    assert (plane.messages, plane.pids()) == ([], before), "a second start does nothing"
    assert plane.paths.kubeconfig.stat().st_mtime_ns == written


@pytest.mark.nightly
def test_a_deleted_state_folder_leaves_no_orphans(plane):
    """After a manual deletion, a start makes a new control plane and ends the old one's processes."""
    before = set(plane.pids().values())
    shutil.rmtree(plane.state)
    plane.start()
    assert works(plane)
    assert before.isdisjoint(plane.pids().values())


@pytest.mark.nightly
def test_the_kubeconfig_is_private_and_whole(plane):
    path = plane.paths.kubeconfig
    assert path.stat().st_mode & 0o777 == 0o600
    content = yaml.safe_load(path.read_text())
    assert content["current-context"] == "gpuform-local"
    assert [context["name"] for context in content["contexts"]] == ["gpuform-local"]
    assert str(plane.state) not in path.read_text()
    user = content["users"][0]["user"]
    assert base64.b64decode(user["client-key-data"]).startswith(b"-----BEGIN RSA PRIVATE KEY")
    path.chmod(0o644)
    plane.start()
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_stack_has_a_control_plane_of_its_own(plane):
    """tests/journey/test_stacks.py makes two stacks with `gpuform up`."""
    with removed(replace(plane, stack="two")) as other:
        other.start()
        assert "kept" not in other.kubectl("get", "configmap", "-o", "name")
        assert set(plane.pids().values()).isdisjoint(other.pids().values())
        other.plane.stop()
        assert works(plane)
    assert holds_its_data(plane)


def test_nothing_listens_beyond_loopback(plane):
    inodes = set()
    for process in scan(plane.layout):
        inodes |= {str(entry.readlink()) for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
    listening = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in inodes:
                listening.append(columns[1].partition(":")[0])
    assert len(listening) >= 5
    assert set(listening) == {"0100007F"}


@pytest.mark.parametrize("member", ["etcd", "etcd-peer"])
def test_etcd_answers_only_with_the_clusters_certificate(plane, member):
    """Every user of the machine reaches a port of loopback, and etcd holds the secrets."""
    port = Record.load(plane.layout).ports[member]
    pki = plane.layout.workdir / "pki"
    path = "/version" if member == "etcd" else "/members"
    with pytest.raises((OSError, http.client.HTTPException)):
        asked(http.client.HTTPConnection("127.0.0.1", port, timeout=5), path)
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    with pytest.raises((OSError, http.client.HTTPException)):
        asked(http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context), path)
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    assert asked(http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context), path) == 200


def asked(connection: http.client.HTTPConnection, path: str) -> int:
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.nightly
def test_the_members_say_where_they_are_and_what_they_take(plane):
    status = plane.plane.status()
    assert status.ready
    assert status.kubernetes == f"v{versions.KUBERNETES}"
    running = {member.name: member for member in status.members if member.running}
    assert list(running) == list(MEMBERS)
    assert len({member.port for member in running.values()}) == len(MEMBERS)
    megabytes = sum(member.rss_bytes for member in running.values()) / 2**20
    assert 200 < megabytes < 700
