"""Processes beside the cluster: identified by folder, not reachable, and ended with their parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from lab.rehearse.children import Children, end
from tests.waiting import until

pytestmark = pytest.mark.unit

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
    from lab.rehearse.children import Children
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
        end(process)


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
        for one in (foreign, reader):
            one.kill()
            one.wait()
