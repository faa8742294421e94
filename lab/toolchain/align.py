"""Give modules that several tools compile one version: ``python -m lab.toolchain.align``.

Go compiles a package once for all tools only if every package below it has the same version in each of them.
Run this after a pin has changed; it renews go.mod and go.sum of the modules in `ALIGNED`.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from semver import Version

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from infra import versions
from lab.toolchain.catalogue import CATALOGUE, GATE
from lab.toolchain.golang import find_go, plain_environment
from lab.toolchain.progress import PlainReporter
from lab.toolchain.store import Store

_TOOLS = (*GATE, "gpu-operator", "nfd-master")
"""Those of the gate, and NVIDIA's operator, which a first ``--operator real`` builds while a user waits."""
ALIGNED = tuple(dict.fromkeys(CATALOGUE[name].module.name for name in _TOOLS))
KUBERNETES_LIBRARIES = f"v0.{versions.KUBERNETES.split('.', 1)[1]}"
"""Version of ``k8s.io/api``, ``k8s.io/client-go`` and their like: that of the control plane."""
LIBRARIES_OF: Mapping[str, str] = MappingProxyType(
    {"kube-state-metrics": "1.34", "pulumi-kubernetes": "1.34", "karpenter": "1.35", "nfd": "1.35"}
)
"""The Kubernetes of tools that call what the libraries of the control plane do not have (any more)."""
KEPT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # The kubelet's packages do not compile with the newer cgroups.
        "kubernetes": ("github.com/opencontainers/",),
        # Its sources call functions of the newer kustomize.
        "kwok": ("sigs.k8s.io/kustomize/",),
        # A provider is compiled against the SDK of its release, with names that newer ones have dropped.
        "pulumi-kubernetes": ("github.com/pulumi/",),
        "pulumi-openstack": ("github.com/pulumi/",),
        # It names a type that newer candidates of yaml's next version have dropped.
        "actionlint": ("go.yaml.in/yaml/v4",),
        # vfsgen, which is no longer maintained, does not compile with the newer one.
        "pulumi": ("github.com/shurcooL/httpfs",),
    }
)
"""Beginnings of module paths that a tool keeps at its own version."""
Requirements = Mapping[str, Mapping[str, str]]
"""Version by module path, by folder below ``toolchain/``."""


def required(go_mod: str) -> dict[str, str]:
    """Version by module path, after replacements; a module replaced by another one is left out."""
    found = dict(re.findall(r"^(?:require)?\s+(\S+\.\S+) (v\S+)(?: // indirect)?$", go_mod, re.MULTILINE))
    replaced = re.findall(r"^(?:replace)?\s*(\S+\.\S+)(?: v\S+)? => (\S+)(?: (v\S+))?$", go_mod, re.MULTILINE)
    for path, other, version in replaced:
        if path in found and other == path:
            found[path] = version
        else:
            found.pop(path, None)
    return found


def read(folder: Path) -> dict[str, dict[str, str]]:
    """What each aligned module below ``folder`` requires."""
    return {name: required((folder / name / "go.mod").read_text(encoding="utf-8")) for name in ALIGNED}


def wanted(requirements: Requirements) -> dict[str, dict[str, str]]:
    """The same modules, each at the newest version that a tool of its group requires."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, modules in requirements.items():
        for path, version in modules.items():
            found[path, _group(name, path, version)].append(version)
    newest = {key: max(candidates, key=precedence) for key, candidates in found.items()}
    newest |= {(path, KUBERNETES_LIBRARIES): version for path, version in requirements["kubernetes"].items()}
    return {
        name: {path: newest[path, _group(name, path, version)] for path, version in modules.items()}
        for name, modules in requirements.items()
    }


_PINNED = {CATALOGUE[name].module.module_path for name in _TOOLS}
_CONTROLLER_RUNTIME = "sigs.k8s.io/controller-runtime"


def _group(name: str, path: str, version: str) -> str:
    """Tools of one group share the version of a module."""
    if path in _PINNED or path.startswith(KEPT.get(name, ())):
        return name
    if path == _CONTROLLER_RUNTIME or (path.startswith("k8s.io/") and re.match(r"v0\.[1-9]", version)):
        return LIBRARIES_OF.get(name, KUBERNETES_LIBRARIES)
    return ""


def precedence(version: str) -> Version:
    """Go's order, which is that of semantic versions."""
    return Version.parse(version.removeprefix("v"))


def align(folder: Path, go: Path) -> None:
    """Renew the modules below ``folder`` until no version changes; raises Failure if Go refuses one."""
    while True:
        before = read(folder)
        changed = False
        for name, modules in wanted(before).items():
            edits = [
                edit
                for path, version in modules.items()
                if version != before[name][path]
                for edit in _edits(path, version, precedence(before[name][path]) > precedence(version))
            ]
            if edits:
                changed = True
                print(f"{name}: {len(edits)} modules", flush=True)
                _run(go, folder / name, "mod", "edit", *edits)
                _run(go, folder / name, "mod", "tidy")
        if not changed:
            return


def _edits(path: str, version: str, is_older: bool) -> tuple[str, ...]:
    """A replacement is dropped first: it would stand against a requirement of a newer version."""
    change = f"-replace={path}={path}@{version}" if is_older else f"-require={path}@{version}"
    return f"-dropreplace={path}", change


def _run(go: Path, folder: Path, *arguments: str) -> None:
    environment = plain_environment() | {"GOFLAGS": "-mod=mod"}
    result = subprocess.run([go, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise Failure(
            str(folder / "go.mod"),
            f"go {' '.join(arguments[:2])} ended with {result.returncode}: {result.stderr.strip()}",
            "add the module to KEPT if no version serves all tools",
        )


def main() -> None:
    paths = Paths.here()
    align(paths.root / "toolchain", find_go(Store(paths.cache), PlainReporter(print)))


if __name__ == "__main__":
    main()
