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

from gpuform.checkout.paths import Paths
from gpuform.checkout.scratch import preserved_logs
from lab.rehearse import plane as module
from lab.rehearse import plane as planes
from lab.rehearse.plane import plane

pytestmark = pytest.mark.unit


class NoTools:
    def path(self, name: str) -> Path:
        raise AssertionError(name)


TOOLS = NoTools()


class Recorded:
    done: list[str]

    def __init__(self, paths: Paths, tools: Any) -> None:
        """Nothing runs."""

    def start(self, progress: Any) -> None:
        self.done.append("start")

    def stop(self, delete: bool) -> None:
        self.done.append("stop")


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Paths:
    Recorded.done = []
    monkeypatch.setattr(module, "ControlPlane", Recorded)
    return replace(Paths.here(), state=tmp_path)


@contextmanager
def found(number: signal.Signals, disposition: signal.Handlers) -> Iterator[None]:
    """Set a signal's disposition as inherited by this process at its start."""
    before = signal.signal(number, disposition)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_ends_what_it_started(paths: Paths, number: signal.Signals) -> None:
    with found(number, signal.SIG_DFL):
        with pytest.raises(KeyboardInterrupt), plane(paths, TOOLS, "lab", print):
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_DFL
    assert Recorded.done == ["stop", "start", "stop"]


def test_who_is_not_to_hear_of_a_closed_terminal_does_not(paths: Paths) -> None:
    with found(signal.SIGHUP, signal.SIG_IGN):  # as nohup does
        with plane(paths, TOOLS, "lab", print):
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert Recorded.done == ["stop", "start", "stop"]


def test_logs_that_cannot_be_kept_keep_nothing_running(paths: Paths) -> None:
    logs = preserved_logs(module.paths_of_run(paths, "lab"))
    logs.parent.mkdir()
    logs.write_text("a file in the way")
    with pytest.raises(OSError, match=r"lab\.logs"), plane(paths, TOOLS, "lab", print) as own:
        own.logs.mkdir(parents=True)
    assert Recorded.done == ["stop", "start", "stop"]


def test_a_second_preview_of_a_stack_waits_until_the_first_has_ended(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same folders, so the second one's start would end the first one's control plane."""
    monkeypatch.setattr(planes, "ControlPlane", Recorded)
    waiting = threading.Event()

    def say(line: str) -> None:
        if line.startswith("waiting for another `gpuform preview lab`"):
            waiting.set()

    def second() -> None:
        with planes.preview_base(paths, TOOLS, "lab", None, say):
            Recorded.done.append("second")

    other = threading.Thread(target=second)
    with planes.preview_base(paths, TOOLS, "lab", None, print):
        other.start()
        assert waiting.wait(30)
        Recorded.done.append("first")
    other.join(30)
    assert Recorded.done == ["stop", "start", "first", "stop", "stop", "start", "second", "stop"]
