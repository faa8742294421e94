"""Parts without a control plane: ports, lock, record, and how our processes are recognised."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from infra.config import parse
from lab.plane import ControlPlane, controlling, kwokctl, lock, ports, processes
from lab.plane.layout import Layout, Record, rotate_log
from lab.plane.processes import Process, end_processes, scan
from lab.sidecars.controllers.rows import CONTROLLERS
from lab.sidecars.shared.files import write_private
from lab.toolchain import Toolchain
from tests.config.tables import GOOD, SERVED

pytestmark = pytest.mark.unit


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    result = Layout(Paths(root=tmp_path, state=tmp_path / "state", cache=tmp_path / "cache"))
    result.home.mkdir(parents=True)
    return result


@pytest.mark.parametrize(
    ("name", "fits"),
    [("with-dash_dot.1+2@3", True), ("größe", True), ("sp ace", False), ("a,b", False), ("a%20b", False)],
)
def test_a_path_that_kwokctl_cannot_take_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, fits: bool, toolchain: Toolchain
) -> None:
    state = tmp_path / name
    plain = Layout(Paths(root=tmp_path, state=state, cache=tmp_path))
    if fits:
        plain.require_plain()
        return
    with pytest.raises(InputError, match=r"kwokctl accepts no path with blanks .* move the project, or set"):
        ControlPlane(plain.paths, toolchain).start()
    assert not state.exists()


def test_the_controllers_of_queues_and_models_are_declared_by_what_needs_them() -> None:
    assert controlling.declared_controllers(parse(GOOD["embedded"])) == ()
    assert controlling.declared_controllers(parse(GOOD["queues"])) == ("kueue",)
    assert set(controlling.declared_controllers(parse(GOOD["scaling"]))) == {"keda", "keda-adapter"}
    served = {name for name in CONTROLLERS if name.startswith(("kserve", "cert-manager"))}
    assert served <= set(controlling.declared_controllers(parse(SERVED)))


def test_a_checkout_gets_the_same_ports_again_and_another_one_gets_others(tmp_path):
    first, again, other = ports.choose(tmp_path), ports.choose(tmp_path), ports.choose(tmp_path / "other")
    assert first == again
    assert set(first) == set(ports.NAMES)
    assert set(first.values()).isdisjoint(other.values())
    assert all(ports.FIRST <= port <= ports.LAST for port in first.values())


def test_a_block_with_a_taken_port_is_passed_over(tmp_path):
    first = ports.choose(tmp_path)
    with socket.create_server(("127.0.0.1", first["kwok"])):
        assert set(ports.choose(tmp_path).values()).isdisjoint(first.values())
    assert set(ports.choose(tmp_path, taken=[first["etcd"]]).values()).isdisjoint(first.values())


def test_the_holder_of_a_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
        assert ports.port_holder(port).startswith(f"process {os.getpid()} (")
    assert ports.is_free(port)
    assert ports.port_holder(port) == "another process"


def test_no_free_block_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(InputError, match="no block of free ports in 20000-29999; free some of them"):
        ports.choose(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ports": {}, "unknown": 1}', "\x00"])
def test_a_broken_record_is_no_record(layout, text):
    layout.record.write_text(text)
    assert Record.load(layout) == Record()


def test_a_record_comes_back_as_it_was(layout):
    record = Record({"etcd": 1}, "abc")
    record.store(layout)
    assert Record.load(layout) == record
    assert layout.record.stat().st_mode & 0o777 == 0o600


def test_a_private_file_is_private_even_over_an_open_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o666)
    write_private(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)


def test_one_log_is_kept_back(tmp_path):
    log = tmp_path / "etcd.log"
    for text in ("first", "second"):
        log.write_text(text)
        rotate_log(log)
    assert not log.exists()
    assert (tmp_path / "etcd.previous.log").read_text() == "second"


def _count(path: Path, counter: Path) -> None:
    for _ in range(50):
        with lock.file_lock(path, lambda: None):
            counter.write_text(str(int(counter.read_text()) + 1))


def test_the_lock_lets_one_in_at_a_time(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    context = multiprocessing.get_context("fork")
    crowd = [context.Process(target=_count, args=(tmp_path / "lock", counter)) for _ in range(4)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
    assert counter.read_text() == "200"


def test_the_lock_of_a_killed_holder_is_free(tmp_path):
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path; from lab.plane import lock\n"
        "with lock.file_lock(Path(sys.argv[1]), lambda: None): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    messages = []
    with lock.file_lock(path, lambda: messages.append("busy")):
        assert messages == []


@pytest.fixture
def program(layout) -> Path:
    file = layout.workdir / "bin" / "kube-scheduler"
    file.parent.mkdir(parents=True)
    file.symlink_to("/bin/sleep")
    return file


@pytest.fixture
def dummy(program):
    process = subprocess.Popen([str(program), "60"])
    yield process
    process.kill()
    process.wait()


def test_ours_is_what_runs_from_our_folder(layout, dummy, tmp_path):
    assert [(process.name, process.pid) for process in scan(layout)] == [("kube-scheduler", dummy.pid)]
    born = scan(layout)[0].start_time
    assert abs(born - time.time()) < 5
    sibling = Layout(Paths(root=tmp_path, state=tmp_path / "state2", cache=tmp_path))
    assert scan(sibling) == []


def test_a_process_in_the_midst_of_exec_is_seen(layout, program):
    for _ in range(200):
        with subprocess.Popen([str(program), "60"]) as process:
            seen = processes.find_process_by(processes.naming_of(layout), process.pid)
            process.kill()
        assert seen is not None


def test_end_ends_it_and_returns_when_it_is_gone(layout, dummy):
    end_processes(layout, scan(layout), grace=1)
    assert scan(layout) == []
    assert dummy.wait(timeout=1) == -signal.SIGTERM


def test_end_kills_what_does_not_listen(layout, dummy):
    os.kill(dummy.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, dummy.pid, os.WSTOPPED | os.WNOWAIT)
    end_processes(layout, scan(layout), grace=0.2)
    assert dummy.wait(timeout=1) == -signal.SIGKILL


def test_a_process_id_that_is_somebody_elses_by_now_is_left_alone(layout, dummy):
    stranger = subprocess.Popen(["/bin/sleep", "60"])
    (ours,) = scan(layout)
    reused = Process(ours.name, ours.pid, ours.started - 1)
    end_processes(layout, [Process("etcd", stranger.pid, 0), reused], grace=0)
    assert stranger.poll() is None
    assert dummy.poll() is None
    stranger.kill()
    stranger.wait()


def test_what_kwokctl_is_told_is_the_same_every_time_and_changes_with_the_ports(layout, tmp_path):
    numbers = ports.choose(tmp_path)
    text = kwokctl.configuration(layout, numbers)
    assert text == kwokctl.configuration(layout, numbers)
    moved = kwokctl.configuration(layout, numbers | {"etcd": 1})
    assert kwokctl.digest(text) != kwokctl.digest(moved)
    options = next(yaml.safe_load_all(text))["options"]
    assert options["bindAddress"] == "127.0.0.1"
    assert options["securePort"] is options["kubeAuthorization"] is True


def test_the_last_line_of_a_log_is_short(tmp_path):
    log = tmp_path / "log"
    assert kwokctl.last_line(log) == "no log"
    log.write_text("\n\n")
    assert kwokctl.last_line(log) == "its log is empty"
    log.write_text("first\n" + "x" * 1000 + "\n\n")
    assert kwokctl.last_line(log) == "x" * 300
