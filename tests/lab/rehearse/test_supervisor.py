"""Processes beside the cluster: known by folder, not reachable, ended with their parent, kept running."""

from __future__ import annotations

import os
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
from tests.fakes.client import kubeconfig
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


def test_no_other_machine_connects_to_what_listens_on_every_address(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = Children(tmp_path).start(program(tmp_path, SERVER), {}, log)
    try:
        port = int(str(until(lambda: log.exists() and log.read_text())))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        assert process.poll() is None
    finally:
        end_process(process)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (ACCEPTS, "no server\n"),
        ("import os; print(sorted(os.environ.items() - {('LC_CTYPE', 'C.UTF-8')}))", "[('A', 'b')]\n"),
    ],
    ids=["no server", "no other environment"],
)
def test_a_child_accepts_nothing_and_has_the_given_environment(
    text: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    log = tmp_path / "log"
    assert Children(tmp_path).start(program(tmp_path, text), {"A": "b"}, log).wait(timeout=10) == 0
    assert log.read_text() == output


def test_a_killed_parent_leaves_none(tmp_path: Path) -> None:
    program(tmp_path, SERVER)
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)])
    children = Children(tmp_path)
    until(children.running)
    parent.kill()
    parent.wait()
    until(lambda: not children.running())


def test_a_child_ends_with_the_thread_that_started_it(tmp_path: Path) -> None:
    command, log, started = program(tmp_path, SERVER), tmp_path / "log", list[subprocess.Popen[bytes]]()

    def start() -> None:
        started.append(Children(tmp_path).start(command, {}, log))
        until(log.read_text)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert started[0].wait(timeout=10)


def test_a_child_that_is_left_is_ended_and_nothing_else(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    other.mkdir()
    children = Children(own)
    process = children.start(program(own, SERVER), dict(os.environ), own / "log")
    commands = (program(other, SERVER), ["tail", "-f", str(own / "program.py")])
    others = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    try:
        until(lambda: [found.name for found in children.running()] == ["program.py"])
        children.end_left()
        assert process.wait(timeout=10)
        assert not children.running()
        assert [item.poll() for item in others] == [None, None]
    finally:
        for item in others:
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
        if subject == "refused":
            raise Failure(subject, "cannot be", "leave it")
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


def test_a_process_runs_while_it_is_wanted(
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


def test_a_process_that_ends_by_itself_is_restarted_later_every_time(
    following: Supervisor[str], wanted: FakeSource
) -> None:
    wanted.now = "a"
    with following:
        for count in (1, 2):
            until(lambda count=count: len(wanted.started) == count)
            began = time.monotonic()
            wanted.started[-1][1].kill()
            until(lambda count=count: len(wanted.started) == count + 1)
            assert time.monotonic() - began >= count
            assert following.ended == count
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


def test_a_process_that_cannot_be_started_says_why(following: Supervisor[str], wanted: FakeSource) -> None:
    wanted.now = "refused"
    with following:
        until(lambda: following.trouble == "refused: cannot be; leave it")
        assert not following.running
