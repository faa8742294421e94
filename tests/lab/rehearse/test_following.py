"""A process that runs while it is wanted, restarts when that changes, and restarts after it exits."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import yaml

from gpuform.checkout.errors import Failure
from lab.rehearse.following import Following
from lab.simulator.api import Api
from tests.waiting import until

pytestmark = pytest.mark.tools


class Wanted:
    """The wanted state, and every process started for it."""

    def __init__(self) -> None:
        self.now: str | None = None
        self.error: Exception | None = None
        self.started: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.looks = 0

    def looked_again(self) -> None:
        before = self.looks
        until(lambda: self.looks >= before + 3)

    async def look(self, api: Api) -> str | None:
        self.looks += 1
        if self.error:
            raise self.error
        return self.now

    def start(self, what: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "60"])
        self.started.append((what, process))
        return process


@pytest.fixture
def wanted() -> Wanted:
    return Wanted()


@pytest.fixture
def following(tmp_path: Path, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> Following[str]:
    monkeypatch.setattr("lab.rehearse.following.EVERY_S", 0.02)
    named = {"name": "a"}
    config = {
        "current-context": "a",
        "contexts": [{**named, "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{**named, "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{**named, "user": {}}],
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    return Following(kubeconfig, wanted.look, wanted.start, tmp_path / "logs" / "log")


def test_it_is_there_while_it_is_wanted(following: Following[str], wanted: Wanted) -> None:
    with following:
        wanted.looked_again()
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
    following: Following[str], wanted: Wanted
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


def test_a_cluster_that_does_not_answer_changes_nothing(following: Following[str], wanted: Wanted) -> None:
    wanted.now = "a"
    with following:
        until(lambda: following.running)
        wanted.error = OSError("no answer")
        until(lambda: following.trouble == "OSError: no answer")
        wanted.looked_again()
        assert following.running
        assert following.log.read_text() == "OSError: no answer\n"  # logged once, not at every poll
        wanted.error = None
        until(lambda: not following.trouble)
    assert len(wanted.started) == 1


def test_what_cannot_be_started_says_why(
    following: Following[str], wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(what: str) -> subprocess.Popen[bytes]:
        raise Failure(what, "cannot be", "leave it")

    monkeypatch.setattr(following, "_start", refuse)
    wanted.now = "a"
    with following:
        until(lambda: following.trouble == "a: cannot be; leave it")
        assert not following.running
