"""A rehearsal's control plane is removed, whatever happens before."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.scratch import preserved_logs
from lab.rehearse import plane as planes
from lab.rehearse.plane import plane

pytestmark = pytest.mark.unit
TOOLS: Any = None


class FakePlane:
    done: list[str]

    def __init__(self, paths: Paths, tools: Any) -> None: ...

    def start(self, progress: Any) -> None:
        self.done.append("start")

    def stop(self, delete: bool) -> None:
        self.done.append("stop")


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Paths:
    FakePlane.done = []
    monkeypatch.setattr(planes, "ControlPlane", FakePlane)
    return replace(Paths.here(), state=tmp_path)


@contextmanager
def inherited(number: signal.Signals, disposition: signal.Handlers) -> Iterator[None]:
    """Set a signal's disposition as inherited by this process at its start."""
    before = signal.signal(number, disposition)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_ends_what_it_started(paths: Paths, number: signal.Signals) -> None:
    with inherited(number, signal.SIG_DFL):
        with pytest.raises(KeyboardInterrupt), plane(paths, TOOLS, "lab", print):
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_DFL
    assert FakePlane.done == ["stop", "start", "stop"]


def test_an_ignored_signal_stays_ignored(paths: Paths) -> None:
    with inherited(signal.SIGHUP, signal.SIG_IGN):  # as nohup does
        with plane(paths, TOOLS, "lab", print):
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert FakePlane.done == ["stop", "start", "stop"]


def test_logs_that_cannot_be_kept_keep_nothing_running(paths: Paths) -> None:
    logs = preserved_logs(planes.paths_of_run(paths, "lab"))
    logs.parent.mkdir()
    logs.write_text("a file in the way")
    with pytest.raises(OSError, match=r"lab\.logs"), plane(paths, TOOLS, "lab", print) as own:
        own.logs.mkdir(parents=True)
    assert FakePlane.done == ["stop", "start", "stop"]


def test_a_base_that_is_no_commit_starts_no_control_plane(paths: Paths) -> None:
    with (
        pytest.raises(InputError, match="git init"),
        planes.preview_base(paths, TOOLS, "lab", "no-such", print),
    ):
        pass
    assert FakePlane.done == []


def test_a_second_preview_of_a_stack_waits_until_the_first_has_ended(paths: Paths) -> None:
    """Both have the same folders, so the second one's start would end the first one's control plane."""
    waiting = threading.Event()

    def say(line: str) -> None:
        if line.startswith("waiting for another `gpuform preview lab`"):
            waiting.set()

    def second() -> None:
        with planes.preview_base(paths, TOOLS, "lab", None, say):
            FakePlane.done.append("second")

    other = threading.Thread(target=second)
    with planes.preview_base(paths, TOOLS, "lab", None, print):
        other.start()
        assert waiting.wait(30)
        FakePlane.done.append("first")
    other.join(30)
    assert FakePlane.done == ["stop", "start", "first", "stop", "stop", "start", "second", "stop"]
