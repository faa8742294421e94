"""The pins, the go.mod files and the catalogue agree; a tool on PATH is used if its version fits."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from infra import versions
from lab.toolchain import Toolchain, ToolLocation, align
from lab.toolchain.catalogue import CATALOGUE, GATE, MAIN_JOB
from lab.toolchain.golang import GO_BIN, parse_version
from lab.toolchain.tool import Module

pytestmark = pytest.mark.unit
FOLDER = Paths.here().root / "toolchain"
NOT_BUILT = {
    "karpenter-crds": versions.KARPENTER,
    "prometheus-operator-crds": versions.PROMETHEUS_OPERATOR_CRDS,
}
MODULES = {tool.module.name: tool.module for tool in CATALOGUE.values()}
OWN = {"cert-manager", "nvidia-config", "nvml-mock", "pulumi-kubernetes", "pulumi-openstack"}
"""Modules with our own program."""


def go_mod(module: Module) -> str:
    return (FOLDER / module.name / "go.mod").read_text()


def test_every_module_folder_is_in_the_catalogue() -> None:
    assert {folder.name for folder in FOLDER.iterdir() if folder.is_dir()} == {*MODULES, *NOT_BUILT}


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_go_mod_requires_the_pinned_version(module: Module) -> None:
    assert align.required(go_mod(module))[module.module_path] == f"v{module.version}"


def test_both_karpenters_are_of_one_core() -> None:
    """The linker sets the core's version in both."""
    required = re.findall(r"^\s*sigs\.k8s\.io/karpenter (\S+)", go_mod(MODULES["karpenter"]), re.MULTILINE)
    assert required == [f"v{versions.KARPENTER}"]


@pytest.mark.parametrize(("name", "pin"), NOT_BUILT.items())
def test_crds_are_those_of_the_pinned_version(name: str, pin: str) -> None:
    text = (FOLDER / name / "go.mod").read_text()
    assert re.findall(r"^require \S+ v(\S+)", text, re.MULTILINE) == [pin]


def test_prometheus_is_numbered_as_its_module_is() -> None:
    """Go's rule for a module without its major version in the path: 3.15.0 is 0.315.0."""
    major, minor, patch = versions.PROMETHEUS.split(".")
    assert f"0.{major}{minor:0>2}.{patch}" == versions.PROMETHEUS_MODULE


@pytest.mark.parametrize("name", sorted(set(MODULES) - OWN))
def test_go_mod_names_exactly_the_packages_that_are_built(name: str) -> None:
    text = go_mod(MODULES[name])
    block = re.search(r"^tool \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    packages = block[1].split() if block else re.findall(r"^tool (\S+)", text, re.MULTILINE)
    assert sorted(packages) == sorted(t.package for t in CATALOGUE.values() if t.module.name == name)


def test_kubernetes_staging_modules_have_its_minor_and_patch_version() -> None:
    replaced = re.findall(r"^\s*(k8s\.io/\S+) => (\S+) (\S+)$", go_mod(MODULES["kubernetes"]), re.MULTILINE)
    assert len(replaced) == 29
    assert {(old == new, version) for old, new, version in replaced} == {
        (True, f"v0.{versions.KUBERNETES.split('.', 1)[1]}")
    }


FETCHES_GO = {"karpenter"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_lowest_go_that_is_accepted_builds_the_module_or_fetches_a_newer_patch(name: str) -> None:
    line = re.search(r"^go (\S+)$", go_mod(MODULES[name]), re.MULTILINE)
    assert line
    needed, lowest = parse_version(f"go{line[1]}"), parse_version(f"go{versions.GO}")
    assert needed
    assert lowest
    assert needed <= lowest or (needed[:2] == lowest[:2] and name in FETCHES_GO)


def test_go_bin_is_new_enough() -> None:
    ours, lowest = parse_version(f"go{GO_BIN}"), parse_version(f"go{versions.GO}")
    assert (ours or ()) >= (lowest or (99,))


def test_the_main_job_needs_no_tool_that_only_tests_and_rehearsals_run() -> None:
    assert set(GATE) - set(MAIN_JOB) == {
        *("nvidia-ctk", "nvidia-mig-parted", "nvml-mock"),
        *("actionlint", "helm", "karpenter", "kueue", "pulumi-openstack-offline"),
    }
    assert set(CATALOGUE) - set(GATE) == {
        *("cert-manager", "cert-manager-cainjector", "cert-manager-webhook", "kserve"),
        *("keda", "keda-adapter", "pulumi-resource-openstack", "gpu-operator", "nfd-gc", "nfd-master"),
    }


def test_tools_of_the_gate_compile_what_they_share_once() -> None:
    """A version that differs makes Go compile the module, and all that uses it, once more."""
    requirements = align.read(FOLDER)
    assert align.wanted(requirements) == requirements, "python -m lab.toolchain.align renews them"


def test_every_exception_of_the_alignment_is_used() -> None:
    requirements = align.read(FOLDER)
    for name, beginnings in align.KEPT.items():
        for beginning in beginnings:
            others = {path for other in requirements.keys() - {name} for path in requirements[other]}
            assert any(path.startswith(beginning) for path in others & requirements[name].keys())


def test_alignment_takes_the_newest_version_of_each_group() -> None:
    control_plane = {"k8s.io/api": align.KUBERNETES_LIBRARIES, "golang.org/x/net": "v0.9.0"}
    newer = {"k8s.io/api": "v0.98.1", "k8s.io/utils": "v0.0.0-20260101000001-000000000000"}
    found = align.wanted(
        {
            "kubernetes": control_plane,
            "prometheus": {"k8s.io/api": "v0.99.0", "golang.org/x/net": "v0.10.0"},
            "karpenter": {"k8s.io/api": "v0.98.0", "k8s.io/utils": "v0.0.0-20260101000000-aaaaaaaaaaaa"},
            "nfd": newer,
        }
    )
    both = {**control_plane, "golang.org/x/net": "v0.10.0"}
    assert found == {"kubernetes": both, "prometheus": both, "karpenter": newer, "nfd": newer}


def test_alignment_raises_a_library_that_is_replaced_by_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``go mod edit -require`` alone leaves the replacement, so that no round would be the last."""
    new, old = align.KUBERNETES_LIBRARIES, "v0.1.0"
    for name in align.ALIGNED:
        (tmp_path / name).mkdir()
        replaced = f"\nreplace k8s.io/api => k8s.io/api {old}" if name == "prometheus" else ""
        (tmp_path / name / "go.mod").write_text(f"module m\nrequire k8s.io/api {new}{replaced}\n")

    def edit(go: Path, folder: Path, *arguments: str) -> None:
        text = (folder / "go.mod").read_text()
        if "-dropreplace=k8s.io/api" in arguments:
            text = text.replace(f"\nreplace k8s.io/api => k8s.io/api {old}", "")
        (folder / "go.mod").write_text(text)
        assert next(rounds) < 9

    rounds = iter(range(10))
    monkeypatch.setattr(align, "_run", edit)
    monkeypatch.setattr(align, "LIBRARIES_OF", {})
    align.align(tmp_path, Path("go"))
    assert {made["k8s.io/api"] for made in align.read(tmp_path).values()} == {new}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("v1.9.0", "v1.10.0"),
        ("v1.36.12-0.20260120151049-f2248ac996af", "v1.36.12"),
        ("v0.0.0-20250604170112-4c0f3b243397", "v0.0.0-20260626114624-be93311217bd"),
        ("v2.4.0+incompatible", "v2.5.0+incompatible"),
    ],
)
def test_versions_are_ordered_as_go_orders_them(older: str, newer: str) -> None:
    assert align.precedence(older) < align.precedence(newer)


Write = Callable[[str, str, str], Path]

# (tool, the binary's output, the version that locate returns, empty if it must not be used)
ANSWERS = [
    ("pulumi", "v3.256.0", "3.256.0"),
    ("pulumi", "v3.256.1", ""),
    ("pulumi", "v3.255.0", ""),
    ("kube-apiserver", "Kubernetes v1.36.3", "1.36.3"),
    ("kube-apiserver", "Kubernetes v1.36.2", ""),
    ("kube-scheduler", "Kubernetes v1.36.3-rc.1", ""),
    ("kubectl", "Client Version: v1.36.3\nKustomize Version: v5.7.1", "1.36.3"),
    ("kubectl", "Client Version: v1.33.4\nKustomize Version: v1.36.3", ""),
    ("etcd", "etcd Version: 3.6.14\nGit SHA: a061450\nGo Version: go1.24.7", "3.6.14"),
    ("etcd", "etcd Version: 3.6.15\nGit SHA: 1", "3.6.15"),
    ("etcd", "etcd Version: 3.6.13\nGit SHA: 1", ""),
    ("etcd", "etcd Version: 3.7.0\nGit SHA: 1", ""),
    ("kwok", "kwok version v0.8.0 go1.26.8 (linux/amd64)", "0.8.0"),
    ("kwokctl", "kwokctl version v0.6.1 go1.23.9 (linux/amd64)", ""),
    ("helm", "v3.19.0+g3d8990f", "3.19.0"),
    ("helm", "v3.22.1+g3d8990f", "3.22.1"),
    ("helm", "v3.18.6+gb76a950", ""),
    ("helm", "v4.0.0+g99cd196", ""),
    ("helm", "no version at all", ""),
    ("kube-state-metrics", "kube-state-metrics, version v2.18.0 (branch: , revision: unknown)", "2.18.0"),
    ("kube-state-metrics", "kube-state-metrics, version v2.14.0 (branch: main)", ""),
]


@pytest.fixture
def empty(tmp_path: Path) -> Paths:
    return Paths(root=Paths.here().root, state=tmp_path / "state", cache=tmp_path / "cache")


@pytest.mark.parametrize(("name", "answer", "version"), ANSWERS)
def test_a_tool_on_path_is_used_by_its_version(
    empty: Paths,
    executable: Write,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    answer: str,
    version: str,
) -> None:
    binary = executable("bin", name, f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}/bin")
    result = Toolchain(empty).locate(name)
    if version:
        assert result == ToolLocation(name, version, "path", binary)
    else:
        assert result == ToolLocation(name, CATALOGUE[name].module.displayed_version, "missing", None)


def test_a_foreign_one_does_not_hide_the_right_one(
    empty: Paths, executable: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = executable("first", "helm", "#!/bin/sh\necho v2.17.0\n")
    right = executable("second", "helm", "#!/bin/sh\necho v3.19.2\n")
    monkeypatch.setenv("PATH", os.pathsep.join([str(foreign.parent), str(right.parent)]))
    assert Toolchain(empty).path("helm") == right


def test_a_broken_one_is_passed_over(
    empty: Paths, executable: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = executable("bin", "helm", "#!/bin/sh\necho v3.19.0\nexit 1\n")
    executable("bin", "etcd", "no program at all")
    monkeypatch.setenv("PATH", str(broken.parent))
    toolchain = Toolchain(empty)
    assert [toolchain.locate(name).source for name in ("helm", "etcd")] == ["missing", "missing"]


def test_our_own_helper_is_never_taken_from_path(
    empty: Paths, executable: Write, monkeypatch: pytest.MonkeyPatch
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
