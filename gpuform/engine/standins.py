"""The plugins of engine runs: official ones if available, else the project's own stand-ins.

They are installed in our own PULUMI_HOME. The engine looks there last, after PATH and after the plugins
next to ``pulumi``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from gpuform.checkout.paths import Paths
from gpuform.engine.places import Places, Tools, link, tool, write
from infra.versions import OPENSTACK_PROVIDER, PULUMI, PULUMI_KUBERNETES_MODULE

_DAY = PULUMI_KUBERNETES_MODULE.split("-")[1]
_SOURCES = {
    "kubernetes": f"source of {_DAY[:4]}-{_DAY[4:6]}-{_DAY[6:8]}",
    "openstack": f"terraform-provider-openstack {OPENSTACK_PROVIDER}, with Magnum's types alone",
}
"""What the toolchain builds a provider from."""
_REAL = re.compile(r"kind:.*\b(aws|openstack|existing|hosts)\b")
_SDKS = ("kubernetes", "aws", "openstack")
"""Providers with an SDK package of their own, which determines the version."""


@dataclass(frozen=True)
class _Ours:
    kind: str
    name: str
    module: str = ""
    tool: str = ""
    stands_in: bool = False

    @property
    def file(self) -> str:
        return f"pulumi-{self.kind}-{self.name}"

    @property
    def word(self) -> str:
        """Word in the stack files that need the plugin; empty if every stack needs it."""
        return "openstack" if self.name == "openstack" else ""

    @property
    def version(self) -> str:
        """The version that programs ask the engine for: that of the SDK they import."""
        if self.kind == "language" or self.name == "pulumi-python":
            return PULUMI
        return version(f"pulumi-{self.name}" if self.name in _SDKS else "gpuform")

    @property
    def folder(self) -> str:
        return f"{self.kind}-{self.name}-v{self.version}"


_OURS = (
    _Ours("language", "python", "lab.offline.language", stands_in=True),
    _Ours("resource", "kubernetes", tool="pulumi-resource-kubernetes", stands_in=True),
    # Only if the SDK (gpuform[openstack]) is installed, because it requests its own version.
    *(
        [_Ours("resource", "openstack", tool="pulumi-resource-openstack", stands_in=True)]
        if find_spec("pulumi_openstack")
        else []
    ),
    _Ours("resource", "pulumi-python", "pulumi.dynamic"),  # part of the SDK
    _Ours("resource", "gpuform", "gpuform.provider.own"),
)


# Only for offline runs, which ignore PATH: other runs must not use a stand-in of a cloud, and offline runs
# must not use a plugin that calls the cloud.
_OFFLINE = tuple(
    ours
    for ours in (
        _Ours("resource", "aws", "lab.offline.aws"),
        _Ours("resource", "openstack", tool="pulumi-openstack-offline"),
    )
    if find_spec(f"pulumi_{ours.name}")  # users of one cloud need not install the other's SDK
)


@dataclass(frozen=True)
class Plugin:
    """A plugin that has an official version; ``official`` is its executable, or None if not installed.

    ``source`` is what the toolchain builds it from; empty if our stand-in is used. ``word`` is in the
    stack files that need the plugin.
    """

    name: str
    version: str
    official: Path | None
    source: str = ""
    word: str = ""

    def starts_for(self, stack_file: Path) -> bool:
        return self.word in (_read(stack_file) if self.word else "")

    def notice(self, stack_file: Path, offline: bool = False) -> str:
        """Notice for runs of a stack if the plugin is not official, else empty.

        The source of January 2026 adopts an object that exists already (pulumi-kubernetes PR 4278).
        """
        if self.official or not self.starts_for(stack_file):
            return ""
        if not self.source:
            return f"gpuform: stand-in for {self.name} {self.version} (the official plugin is not installed)"
        said = f"gpuform: {self.name} is built from {self.source}, not the official {self.version}"
        if offline or self.word or not is_real(stack_file):
            return said
        return (
            f"{said}; warning: a create adopts an existing object of the same name, and renaming a "
            "resource that keeps its metadata.name deletes its object. Install the official one with "
            f"'pulumi {' '.join(installing(self.name, self.version))}'"
        )


def is_real(stack_file: Path) -> bool:
    """Whether a stack reaches beyond this machine: a cloud, own hosts or an existing cluster."""
    return bool(_REAL.search(_read(stack_file)))


def plugins(paths: Paths | None = None, offline: bool = False) -> list[Plugin]:
    """Every plugin that has an official version, with its executable if that is installed.

    Looks on PATH, next to the ``pulumi`` of these runs, in the user's own PULUMI_HOME, and among the tools;
    starts nothing.
    """
    places = Places(paths or Paths.here())
    return [
        Plugin(ours.file, ours.version, _official(ours, places), _SOURCES.get(ours.name, ""), ours.word)
        for ours in _wanted(offline)
        if ours.stands_in
    ]


def install(places: Places, tools: Tools, stack: str) -> None:
    """Install every plugin that the stack needs; idempotent. Errors as ``Tools.path``."""
    file = places.paths.root / f"Pulumi.{stack}.yaml"
    declared, here = _read(file), places.offline or not is_real(file)
    official = {plugin.name: plugin.official for plugin in plugins(places.paths, places.offline)}
    folder = places.home / "plugins"
    for ours in _wanted(places.offline):
        for other in folder.glob(f"{ours.kind}-{ours.name}-v*"):
            if other.name != ours.folder:
                shutil.rmtree(other)  # an older version of ours: only gpuform uses this PULUMI_HOME
        if ours.word not in declared:
            continue
        target = folder / ours.folder / ours.file
        # On this machine no official language host: ours finds the charts.
        instead = ours not in _OFFLINE and not (here and ours.kind == "language")
        found = official.get(ours.file) if instead else None
        if found is None and ours.tool:
            found = tool(places, tools, ours.tool)
        if found is None:
            write(target, _launcher(ours.module), 0o755)
        elif ours.kind == "resource":
            write(target, _following(found), 0o755)
        else:
            link(target, found)
        if ours.kind == "resource" and not places.offline:
            _shadow(ours, places)
    if places.offline:
        write(places.answering / "aws", _launcher("lab.offline.aws.aws"), 0o755)
    if here:
        given = (places.paths.root, places.paths.cache, places.charts)
        write(places.finder, _launcher("lab.offline.charts", *given), 0o755)


def _wanted(offline: bool) -> list[_Ours]:
    instead = {one.file for one in _OFFLINE} if offline else set()
    return [one for one in _OURS if one.file not in instead] + (list(_OFFLINE) if offline else [])


def _launcher(module: str, *arguments: Path) -> str:
    # -P and no PYTHONPATH: modules in the program's folder, where the engine starts plugins, and those of
    # another checkout must not shadow ours. The language host passes PYTHONPATH on to the program.
    words = " ".join(shlex.quote(str(word)) for word in (sys.executable, "-P", "-m", module, *arguments))
    kept = "GPUFORM_PYTHONPATH=${PYTHONPATH-}\nexport GPUFORM_PYTHONPATH\n"
    return f'#!/bin/sh\n{kept}unset PYTHONPATH\nexec {words} "$@"\n'


def _read(stack_file: Path) -> str:
    return stack_file.read_text(encoding="utf-8") if stack_file.is_file() else ""


def _following(official: Path) -> str:
    words = [sys.executable, "-I", "-S", Path(__file__).with_name("follow.py"), official]
    return f'#!/bin/sh\nexec {" ".join(shlex.quote(str(word)) for word in words)} "$@"\n'


def _shadow(ours: _Ours, places: Places) -> None:
    """Put the launcher before a plugin on PATH, which the engine prefers to those of its home."""
    shim = places.paths.shims / ours.file
    if on_path := _on_path(ours, places):
        write(shim, _following(on_path), 0o755)
    else:
        shim.unlink(missing_ok=True)


def _on_path(ours: _Ours, places: Places) -> Path | None:
    searched = [entry for entry in os.get_exec_path() if Path(entry) != places.paths.shims]
    found = shutil.which(ours.file, path=os.pathsep.join(searched))
    return Path(found).absolute() if found else None


def _official(ours: _Ours, places: Places) -> Path | None:
    if on_path := _on_path(ours, places):
        return on_path
    beside = places.pulumi.resolve().with_name(ours.file)
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    candidates = [beside] if ours.kind == "language" else []
    if home != places.home:
        candidates.append(home / "plugins" / ours.folder / ours.file)
    if ours.tool:
        candidates.append(downloaded(places.paths.cache, ours.file, ours.version))
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def downloaded(cache: Path, name: str, version: str) -> Path:
    return cache / "tools" / f"{name}-{version}-plugin" / name


def installing(name: str, version: str) -> list[str]:
    """Arguments of ``pulumi`` that install a plugin."""
    kind, _, of = name.removeprefix("pulumi-").partition("-")
    return ["plugin", "install", kind, of, version]
