"""The cache: free space is checked first, ``clean`` empties only the cache. And the output of progress."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.live import Live

from gpuform.checkout.errors import Failure, InputError
from lab.toolchain import space
from lab.toolchain.catalogue import KUBERNETES, NVIDIA_CONFIG
from lab.toolchain.progress import LiveReporter, PlainReporter, reporting
from lab.toolchain.store import Store

pytestmark = pytest.mark.unit
QUIET = PlainReporter(lambda _: None)


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "mod"))
    monkeypatch.setenv("GOCACHE", str(tmp_path / "build"))
    return tmp_path / "mod"


def free(monkeypatch: pytest.MonkeyPatch, gigabytes: float) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=int(gigabytes * 10**9)))


def test_no_space_for_the_toolchain(cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 1.2)
    with pytest.raises(InputError) as error:
        space.require_space(tmp_path / "cache" / "tools", KUBERNETES)
    assert str(error.value) == (
        f"toolchain: 1.2 GB free at {tmp_path}/build, 2.3 GB needed; "
        "free space or set GOMODCACHE and GOCACHE to a place on a larger disk"
    )


@pytest.mark.parametrize("below", ["", "/x"])
def test_a_cache_that_cannot_be_a_folder_is_bad_input(cold: Path, tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match=r"file is a file, not a folder; .*set GPUFORM_CACHE to one"):
        space.require_space(Path(f"{tmp_path}/file{below}") / "tools", KUBERNETES)
    assert (tmp_path / "file").read_text() == "kept"


def test_a_cache_that_cannot_be_written_is_not_called_full(
    cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = Path("/proc/.cache/gpuform/tools")
    with pytest.raises(InputError, match=rf"^{tools}: cannot be written \(.*GPUFORM_CACHE"):
        space.require_space(tools, KUBERNETES)
    space.require_space(tools)  # one that holds every tool need not be writable
    monkeypatch.setenv("GOCACHE", "/proc/go-build")
    with pytest.raises(InputError, match=r"^/proc/go-build: cannot be written .*GOMODCACHE and GOCACHE"):
        space.require_space(tmp_path / "tools", KUBERNETES)


def test_no_space_is_noticed_before_anything_is_built(fake_go, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 0.0001)
    with pytest.raises(InputError, match=r"toolchain: 0\.0 GB free at .*, 0\.0 GB needed; free space"):
        fake_go.toolchain().ensure("tiny", progress=lambda _: None)
    assert fake_go.builds() == []
    assert not fake_go.paths.cache.exists()


def test_what_go_has_already_is_not_asked_for_again(
    cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 0.5)
    (cold / f"k8s.io/kubernetes@v{KUBERNETES.version}").mkdir(parents=True)
    space.require_space(tmp_path / "tools", KUBERNETES, NVIDIA_CONFIG)
    free(monkeypatch, 0.3)
    with pytest.raises(InputError, match=r"toolchain: 0\.3 GB free at .*, 0\.4 GB needed; "):
        space.require_space(tmp_path / "tools", KUBERNETES, NVIDIA_CONFIG)
    (cold / f"github.com/!n!v!i!d!i!a/k8s-device-plugin@v{NVIDIA_CONFIG.version}").mkdir(parents=True)
    space.require_space(tmp_path / "tools", KUBERNETES, NVIDIA_CONFIG)


def test_go_caches_follow_gos_own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("GOMODCACHE", "GOCACHE", "GOPATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HOME", "/h")
    assert space.go_caches() == (Path("/h/go/pkg/mod"), Path("/h/.cache/go-build"))
    monkeypatch.setenv("GOPATH", "/a:/b")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert space.go_caches() == (Path("/a/pkg/mod"), Path("/c/go-build"))


def test_clean_empties_the_tools_and_nothing_else(fake_go) -> None:
    toolchain = fake_go.toolchain()
    size = toolchain.path("tiny").stat().st_size
    other = fake_go.paths.cache / "not-ours"
    other.write_text("kept")
    assert toolchain.clean() == size
    assert not fake_go.tools.exists()
    assert other.read_text() == "kept"
    assert (fake_go.paths.cache / "logs" / "build-tiny.log").exists()
    assert toolchain.locate("tiny").source == "missing"
    assert toolchain.clean() == 0
    assert toolchain.path("tiny").is_file()


def test_clean_refuses_while_another_run_builds(fake_go) -> None:
    path = fake_go.toolchain().path("tiny")
    fork = multiprocessing.get_context("fork")
    held, done = fork.Event(), fork.Event()

    def hold() -> None:
        with Store(fake_go.paths.cache).lock("tiny", QUIET):
            held.set()
            done.wait(20)

    process = fork.Process(target=hold)
    process.start()
    try:
        assert held.wait(10)
        with pytest.raises(Failure) as error:
            fake_go.toolchain().clean()
        assert str(error.value) == (
            f"toolchain: process {process.pid} builds tiny into {fake_go.tools}; "
            "wait until it has ended, then clean"
        )
        assert path.is_file()
    finally:
        done.set()
        process.join(10)
    assert fake_go.toolchain().clean() > 0


def test_a_folder_without_its_binary_is_filled_again(fake_go) -> None:
    path = fake_go.toolchain().path("tiny")
    path.unlink()
    assert fake_go.toolchain().path("tiny") == path
    assert os.access(path, os.X_OK)


def test_plain_lines_come_at_most_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    written: list[str] = []
    lines = PlainReporter(written.append, interval_s=10.0)
    for second in range(35):
        clock[0] = 100.0 + second
        lines.update(f"{second} s")
    lines.line("done")
    assert written == ["10 s", "20 s", "30 s", "done"]


def test_a_terminal_has_one_live_line_and_keeps_the_others() -> None:
    out = io.StringIO()
    live = LiveReporter(Console(file=out, force_terminal=True, width=80, color_system=None))
    live.update("kube-apiserver … 85 s, 412 packages")
    live.line("kube-apiserver: built in 86 s")
    live.close()
    assert "kube-apiserver … 85 s, 412 packages" in out.getvalue()
    assert out.getvalue().endswith("kube-apiserver: built in 86 s\n")


def test_beside_another_live_line_there_are_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with reporting(None) as alone:
        assert isinstance(alone, LiveReporter)
    with Live("", console=Console(file=io.StringIO(), force_terminal=True)), reporting(None) as beside:
        assert isinstance(beside, PlainReporter)


def test_lines_go_to_the_function_or_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    written: list[str] = []
    for progress in (written.append, None):
        with reporting(progress) as report:
            report.line("one")
            report.update("too soon")
    assert (written, capsys.readouterr()) == (["one"], ("", "one\n"))
