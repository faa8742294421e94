"""A tool on PATH is used if its version fits, and silently ignored otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from lab.toolchain import Toolchain, ToolLocation
from lab.toolchain.catalogue import CATALOGUE

pytestmark = pytest.mark.unit
Executable = Callable[[str, str, str], Path]

# (tool, the binary's output, the version that locate returns, or None if it must not be used)
ANSWERS = [
    ("pulumi", "v3.256.0", "3.256.0"),
    ("pulumi", "v3.256.1", None),
    ("pulumi", "v3.255.0", None),
    ("kube-apiserver", "Kubernetes v1.34.10", "1.34.10"),
    ("kube-apiserver", "Kubernetes v1.34.9", None),
    ("kube-scheduler", "Kubernetes v1.34.10-rc.1", None),
    ("kubectl", "Client Version: v1.34.10\nKustomize Version: v5.7.1", "1.34.10"),
    ("kubectl", "Client Version: v1.33.4\nKustomize Version: v1.34.10", None),
    ("etcd", "etcd Version: 3.6.14\nGit SHA: a061450\nGo Version: go1.24.7", "3.6.14"),
    ("etcd", "etcd Version: 3.6.15\nGit SHA: 1", "3.6.15"),
    ("etcd", "etcd Version: 3.6.13\nGit SHA: 1", None),
    ("etcd", "etcd Version: 3.7.0\nGit SHA: 1", None),
    ("kwok", "kwok version v0.8.0 go1.26.8 (linux/amd64)", "0.8.0"),
    ("kwokctl", "kwokctl version v0.6.1 go1.23.9 (linux/amd64)", None),
    ("helm", "v3.19.0+g3d8990f", "3.19.0"),
    ("helm", "v3.22.1+g3d8990f", "3.22.1"),
    ("helm", "v3.18.6+gb76a950", None),
    ("helm", "v4.0.0+g99cd196", None),
    ("helm", "no version at all", None),
    ("kube-state-metrics", "kube-state-metrics, version v2.18.0 (branch: , revision: unknown)", "2.18.0"),
    ("kube-state-metrics", "kube-state-metrics, version v2.14.0 (branch: main)", None),
]


@pytest.fixture
def empty(tmp_path: Path) -> Paths:
    return Paths(root=Paths.here().root, state=tmp_path / "state", cache=tmp_path / "cache")


@pytest.mark.parametrize(("name", "answer", "version"), ANSWERS)
def test_version_decides(
    name: str,
    answer: str,
    version: str | None,
    empty: Paths,
    executable: Executable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    binary = executable("bin", name, f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}/bin")
    result = Toolchain(empty).locate(name)
    if version:
        assert result == ToolLocation(name, version, "path", binary)
    else:
        assert result == ToolLocation(name, CATALOGUE[name].module.displayed_version, "missing", None)


def test_a_foreign_one_does_not_hide_the_right_one(
    empty: Paths, executable: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = executable("first", "helm", "#!/bin/sh\necho v2.17.0\n")
    right = executable("second", "helm", "#!/bin/sh\necho v3.19.2\n")
    monkeypatch.setenv("PATH", os.pathsep.join([str(foreign.parent), str(right.parent)]))
    assert Toolchain(empty).path("helm") == right


def test_a_broken_one_is_passed_over(
    empty: Paths, executable: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = executable("bin", "helm", "#!/bin/sh\necho v3.19.0\nexit 1\n")
    executable("bin", "etcd", "no program at all")
    monkeypatch.setenv("PATH", str(broken.parent))
    toolchain = Toolchain(empty)
    assert [toolchain.locate(name).source for name in ("helm", "etcd")] == ["missing", "missing"]


def test_our_own_helper_is_never_taken_from_path(
    empty: Paths, executable: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = executable("bin", "nvidia-config", "#!/bin/sh\necho 0.19.0\n")
    monkeypatch.setenv("PATH", str(binary.parent))
    assert Toolchain(empty).locate("nvidia-config").source == "missing"


def test_locate_leaves_no_trace(empty: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert {Toolchain(empty).locate(name).source for name in CATALOGUE} == {"missing"}
    assert not empty.cache.exists()


def test_unknown_name_lists_the_known_ones(empty: Paths) -> None:
    with pytest.raises(InputError) as error:
        Toolchain(empty).ensure("kubelet")
    assert str(error.value) == f"toolchain: unknown tool kubelet; use one of {', '.join(CATALOGUE)}"


def test_progress_counts_the_modules(empty: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(Toolchain, "_get_tools", lambda *_: None)
    lines: list[str] = []
    Toolchain(empty, releases=()).ensure("kubectl", "kube-scheduler", "etcd", progress=lines.append)
    assert lines == ["tools 1 of 2: kubernetes", "tools 2 of 2: etcd"]
    Toolchain(empty, releases=()).ensure("etcd", progress=lines.append)
    assert len(lines) == 2
