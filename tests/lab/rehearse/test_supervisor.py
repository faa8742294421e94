"""Processes beside the cluster: known by folder, not reachable, ended with their parent, kept running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import yaml

from gpuform.checkout.errors import Failure
from lab.rehearse.cluster import Cluster
from lab.rehearse.supervisor import Children, Supervisor, end_process
from tests.kubernetes.fake_client import kubeconfig
from tests.waiting import until

pytestmark = pytest.mark.tools


SERVER = """
    import select, socket, sys
    server = socket.socket()
    server.bind(("", 0))
    server.listen(5)
    print(server.getsockname()[1], flush=True)
    select.select([], [], [], 60)
"""
ACCEPTS = """
    import socket
    server = socket.socket()
    server.bind(("", 0))
    server.listen(5)
    server.setblocking(False)
    try:
        server.accept()
    except BlockingIOError:
        print("no server", flush=True)
"""
PARENT = """
    import os, sys, time
    from pathlib import Path
    from lab.rehearse.supervisor import Children
    folder = Path(sys.argv[1])
    Children(folder).start([sys.executable, str(folder / "program.py")], dict(os.environ), folder / "log")
    time.sleep(60)
"""


def program(folder: Path, text: str) -> list[str]:
    (folder / "program.py").write_text(textwrap.dedent(text))
    return [sys.executable, str(folder / "program.py")]


def test_nobody_connects_to_what_listens_on_every_address(tmp_path: Path) -> None:
    children, log = Children(tmp_path), tmp_path / "log"
    process = children.start(program(tmp_path, SERVER), {}, log)
    try:
        port = int(str(until(lambda: log.exists() and log.read_text())))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        assert process.poll() is None
    finally:
        end_process(process)


def test_who_listens_is_told_that_nobody_is_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert Children(tmp_path).start(program(tmp_path, ACCEPTS), {}, log).wait(timeout=10) == 0
    assert log.read_text() == "no server\n"


def test_it_has_the_environment_that_it_is_given_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    command = program(tmp_path, "import os; print(sorted(os.environ.items() - {('LC_CTYPE', 'C.UTF-8')}))")
    assert Children(tmp_path).start(command, {"A": "b"}, tmp_path / "log").wait(timeout=10) == 0
    assert (tmp_path / "log").read_text() == "[('A', 'b')]\n"


def test_a_killed_parent_leaves_none(tmp_path: Path) -> None:
    program(tmp_path, SERVER)
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)]
    parent = subprocess.Popen(command)
    children = Children(tmp_path)
    until(children.running)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not children.running())


def test_it_ends_with_the_thread_that_started_it(tmp_path: Path) -> None:
    command, log, started = program(tmp_path, SERVER), tmp_path / "log", list[subprocess.Popen[bytes]]()

    def start() -> None:
        started.append(Children(tmp_path).start(command, {}, log))
        until(log.read_text)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert started[0].wait(timeout=10)


def test_what_is_left_is_ended_and_nothing_else(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    other.mkdir()
    children = Children(ours)
    process = children.start(program(ours, SERVER), dict(os.environ), ours / "log")
    foreign = subprocess.Popen(program(other, SERVER), stdout=subprocess.DEVNULL)
    reader = subprocess.Popen(["tail", "-f", str(ours / "program.py")], stdout=subprocess.DEVNULL)
    try:
        until(lambda: [found.name for found in children.running()] == ["program.py"])
        children.end_left()
        assert process.wait(timeout=10)
        assert not children.running()
        assert foreign.poll() is None
        assert reader.poll() is None
    finally:
        for item in (foreign, reader):
            item.kill()
            item.wait()


class FakeSource:
    """The wanted state, and every process started for it."""

    def __init__(self) -> None:
        self.now: str | None = None
        self.error: Exception | None = None
        self.started: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.reads = 0

    def wait_for_reads(self) -> None:
        before = self.reads
        until(lambda: self.reads >= before + 3)

    def read(self, cluster: Cluster) -> str | None:
        self.reads += 1
        if self.error:
            raise self.error
        return self.now

    def start(self, subject: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "60"])
        self.started.append((subject, process))
        return process


@pytest.fixture
def wanted() -> FakeSource:
    return FakeSource()


@pytest.fixture
def following(tmp_path: Path, wanted: FakeSource, monkeypatch: pytest.MonkeyPatch) -> Supervisor[str]:
    monkeypatch.setattr("lab.rehearse.supervisor.INTERVAL_S", 0.02)
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig({"server": "http://127.0.0.1:1"})))
    children = Children(tmp_path / "children")
    return Supervisor(file, wanted.read, wanted.start, children, tmp_path / "logs" / "log")


def test_it_is_there_while_it_is_wanted(
    following: Supervisor[str], wanted: FakeSource, tmp_path: Path
) -> None:
    command = program(following.children.folder, SERVER)
    left = following.children.start(command, dict(os.environ), tmp_path / "left")  # by a killed rehearsal
    with following:
        assert left.wait(timeout=10)
        wanted.wait_for_reads()
        assert not wanted.started
        wanted.now = "a"
        until(lambda: following.running)
        wanted.now = "b"
        until(lambda: len(wanted.started) == 2)
        assert wanted.started[0][1].poll() is not None
        wanted.now = None
        until(lambda: not following.running)
        wanted.now = "b"
        until(lambda: len(wanted.started) == 3)
    assert [what for what, _ in wanted.started] == ["a", "b", "b"]
    assert all(process.poll() is not None for _, process in wanted.started)


def test_what_ends_by_itself_comes_again_but_later_every_time(
    following: Supervisor[str], wanted: FakeSource
) -> None:
    wanted.now = "a"
    with following:
        waited = []
        for count in (1, 2):
            until(lambda count=count: len(wanted.started) == count)
            began = time.monotonic()
            wanted.started[-1][1].kill()
            until(lambda count=count: len(wanted.started) == count + 1)
            waited.append(time.monotonic() - began)
            assert following.ended == count
    assert waited[0] >= 1
    assert waited[1] >= 2
    assert following.log.read_text() == "ended with -9\n" * 2


def test_a_cluster_that_does_not_answer_changes_nothing(
    following: Supervisor[str], wanted: FakeSource
) -> None:
    wanted.now = "a"
    with following:
        until(lambda: following.running)
        wanted.error = OSError("no answer")
        until(lambda: following.trouble == "OSError: no answer")
        wanted.wait_for_reads()
        assert following.running
        assert following.log.read_text() == "OSError: no answer\n"  # logged once, not at every poll
        wanted.error = None
        until(lambda: not following.trouble)
    assert len(wanted.started) == 1


def test_what_cannot_be_started_says_why(
    following: Supervisor[str], wanted: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(subject: str) -> subprocess.Popen[bytes]:
        raise Failure(subject, "cannot be", "leave it")

    monkeypatch.setattr(following, "_start", refuse)
    wanted.now = "a"
    with following:
        until(lambda: following.trouble == "a: cannot be; leave it")
        assert not following.running
