"""Builds: one call per module, one builder at a time, no partial results, errors that name the log."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuform.checkout.errors import Failure, InputError
from infra import versions
from lab.toolchain import Toolchain
from lab.toolchain import build as build_module
from lab.toolchain.golang import go_on_path
from lab.toolchain.tool import relocate
from tests.waiting import until

pytestmark = pytest.mark.tools
FORK = multiprocessing.get_context("fork")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def in_background(toolchain: Toolchain, lines: Path):
    def work() -> None:
        with lines.open("a", buffering=1) as out:
            toolchain.ensure("tiny", progress=lambda text: print(text, file=out))

    process = FORK.Process(target=work)
    process.start()
    return process


def test_a_second_toolchain_builds_nothing(fake_go) -> None:
    lines: list[str] = []
    fake_go.toolchain().ensure("tiny", progress=lines.append)
    assert [line.split(" in ")[0] for line in lines] == ["tiny 1.2.3: building tiny", "tiny: built"]
    assert lines[1].endswith(", 2 packages")
    second = fake_go.toolchain()
    assert second.locate("tiny").source == "built"
    second.ensure("tiny", progress=lines.append)
    assert len(fake_go.builds()) == 1
    assert len(lines) == 2


def test_tools_of_one_module_are_built_in_one_call(fake_go) -> None:
    toolchain = fake_go.toolchain(fake_go.tool("tiny"), fake_go.tool("other"))
    toolchain.ensure("tiny", "other", progress=lambda _: None)
    assert len(fake_go.builds()) == 1
    assert [name.split("-")[0] for name in fake_go.published()] == ["other", "tiny"]


def test_a_program_finds_its_files_in_its_own_folder(
    fake_go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's operator reads manifests from /opt/gpu-operator, in its image."""
    module = tmp_path / "module"
    (module / "assets").mkdir(parents=True)
    (module / "assets" / "state.yaml").write_text("kind: DaemonSet\n")
    monkeypatch.setenv("FAKE_GO_MODULE", str(module))
    plain = fake_go.tool("tiny")
    moved = replace(plain, files=(("assets", "opt/tiny"),), relocated=b"/opt/tiny")
    folder = fake_go.toolchain(moved).path("tiny").parent
    assert (folder / "opt" / "tiny" / "state.yaml").read_text() == "kind: DaemonSet\n"
    assert fake_go.toolchain(plain).locate("tiny").source == "missing"
    program = tmp_path / "program"
    program.write_bytes(b"a/opt/gpu-operator/manifestsb/opt/gpu-operatorc")
    relocate(program, b"/opt/gpu-operator")
    assert program.read_bytes() == b"aopt//gpu-operator/manifestsbopt//gpu-operatorc"


def test_another_source_is_another_tool(fake_go) -> None:
    before = fake_go.toolchain().path("tiny")
    (fake_go.paths.root / "toolchain" / "tiny" / "main_test.go").write_text("package main\n")
    assert fake_go.toolchain().locate("tiny").path == before
    (fake_go.paths.root / "toolchain" / "tiny" / "go.sum").write_text("example.org/x v1.0.0 h1:x=\n")
    assert fake_go.toolchain().locate("tiny").source == "missing"


def test_two_at_once_build_once(fake_go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_SECONDS", "1.5")
    first = in_background(fake_go.toolchain(), tmp_path / "first")
    until(lambda: len(fake_go.builds()) == 1)
    second = in_background(fake_go.toolchain(), tmp_path / "second")
    for process in (first, second):
        process.join(20)
        assert process.exitcode == 0
    assert len(fake_go.builds()) == 1
    assert (tmp_path / "second").read_text().splitlines() == [
        f"tiny: waits for process {first.pid}, which gets it; 0 s"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_killed_build_leaves_no_half_tool(fake_go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_SECONDS", "60")
    builder = in_background(fake_go.toolchain(), tmp_path / "lines")
    until(lambda: len(fake_go.builds()) == 1)
    assert builder.pid
    os.kill(builder.pid, signal.SIGKILL)
    builder.join(10)
    until(lambda: not alive(fake_go.builds()[0]))
    assert fake_go.published() == []
    assert list((fake_go.tools / ".build" / "tiny").iterdir()) != []

    monkeypatch.setenv("FAKE_GO_SECONDS", "0")
    assert fake_go.toolchain().path("tiny").is_file()
    assert not (fake_go.tools / ".build" / "tiny").exists()


def test_ctrl_c_ends_go_and_cleans_up(fake_go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_SECONDS", "60")

    class Interrupted:
        def line(self, text: str) -> None:
            pass

        def update(self, text: str) -> None:
            if fake_go.builds():
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fake_go.toolchain().ensure("tiny", progress=Interrupted())
    assert not alive(fake_go.builds()[0])
    assert list((fake_go.tools / ".build").iterdir()) == []


def test_a_failed_build_names_the_tool_and_the_log(fake_go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_ERROR", "main.go:3:2: undefined: nonsense")
    with pytest.raises(Failure) as error:
        fake_go.toolchain().ensure("tiny", progress=lambda _: None)
    log = fake_go.paths.cache / "logs" / "build-tiny.log"
    assert str(error.value) == (
        "tiny: go build ended with 1:\n  example.org/first\n  example.org/second\n"
        f"  main.go:3:2: undefined: nonsense\n; the whole output is in {log}; compiled packages are kept"
    )
    assert log.read_text().endswith("undefined: nonsense\n")
    assert fake_go.published() == []


def test_no_module_proxy_says_so(fake_go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_ERROR", "go: example.org/x@v1.0.0: dial tcp: lookup proxy: no such host")
    with pytest.raises(
        Failure, match="tiny: the Go module proxy did not provide what the build needs:"
    ) as error:
        fake_go.toolchain().ensure("tiny", progress=lambda _: None)
    assert error.value.remedy.startswith("check the network, GOPROXY and HTTPS_PROXY; ")


def test_a_binary_that_says_another_version_is_not_kept(fake_go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_SAYS", "0.0.0-master")
    with pytest.raises(Failure, match=r"tiny: the binary reports version 0\.0\.0-master, not 1\.2\.3; "):
        fake_go.toolchain().ensure("tiny", progress=lambda _: None)
    assert fake_go.published() == []


def test_a_checkout_without_the_module_says_so(fake_go) -> None:
    (fake_go.paths.root / "toolchain" / "tiny" / "go.mod").unlink()
    with pytest.raises(Failure, match=r"tiny: no go\.mod in .*/toolchain/tiny; run from a complete checkout"):
        fake_go.toolchain().ensure("tiny", progress=lambda _: None)


def test_c_without_a_compiler_says_so(fake_go, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = fake_go.tool()
    with_c = replace(tool, module=replace(tool.module, cgo=True))
    monkeypatch.setattr(build_module.shutil, "which", lambda name, **_: None)
    monkeypatch.setattr("lab.toolchain.chain.find_go", lambda store, report: Path("go"))
    with pytest.raises(InputError) as error:
        fake_go.toolchain(with_c).ensure("tiny", progress=lambda _: None)
    assert str(error.value) == (
        "toolchain: tiny links example.org/tiny, which needs a C compiler, and PATH has none; "
        "install gcc or clang, or set CC"
    )


def test_a_real_build(checkout) -> None:
    if go_on_path() is None:
        pytest.skip(f"no Go {versions.GO} or newer on PATH")
    lines: list[str] = []
    toolchain = checkout.toolchain()
    toolchain.ensure("tiny", progress=lines.append)
    result = toolchain.locate("tiny")
    assert (result.source, result.version) == ("built", "1.2.3")
    assert result.path
    assert result.path.read_bytes()[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")
    assert str(checkout.paths.root).encode() not in result.path.read_bytes()  # -trimpath
    assert list((checkout.tools / ".build").iterdir()) == []
