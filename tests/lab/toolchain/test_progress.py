"""Progress output: few plain lines, or one live line on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lab.toolchain.progress import Lines, Live, reporting

pytestmark = pytest.mark.unit


def test_plain_lines_come_at_most_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    written: list[str] = []
    lines = Lines(written.append, every=10.0)
    for second in range(35):
        clock[0] = 100.0 + second
        lines.update(f"{second} s")
    lines.line("done")
    assert written == ["10 s", "20 s", "30 s", "done"]


def test_a_terminal_has_one_live_line_and_keeps_the_others() -> None:
    out = io.StringIO()
    live = Live(Console(file=out, force_terminal=True, width=80, color_system=None))
    live.update("kube-apiserver … 85 s, 412 packages")
    live.line("kube-apiserver: built in 86 s")
    live.close()
    assert "kube-apiserver … 85 s, 412 packages" in out.getvalue()
    assert out.getvalue().endswith("kube-apiserver: built in 86 s\n")


def test_a_function_gets_lines() -> None:
    written: list[str] = []
    with reporting(written.append) as report:
        report.line("one")
        report.update("too soon")
    assert written == ["one"]


def test_without_anything_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting(None) as report:
        report.line("one")
    assert capsys.readouterr() == ("", "one\n")
