"""The project's own plugins: where the official one is not installed, and how the engine finds ours.

They lie in the plugin folder of our own PULUMI_HOME. The engine looks there last, after PATH and after what
ships next to ``pulumi``, so an official plugin wins without any choice of ours.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from gpuform.engine.places import Places, link, write
from gpuform.paths import Paths
from infra.versions import PULUMI

_SDKS = ("kubernetes", "aws", "openstack")
"""Providers whose SDK is a package of its own, which says the version."""


@dataclass(frozen=True)
class _Ours:
    kind: str
    name: str
    module: str
    stands_in: bool

    @property
    def file(self) -> str:
        return f"pulumi-{self.kind}-{self.name}"

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
    _Ours("language", "python", "gpuform.plugins.language", stands_in=True),
    _Ours("resource", "kubernetes", "gpuform.plugins.kubernetes", stands_in=True),
    # Only where the SDK is installed, which asks for its own version: it comes with gpuform[openstack].
    *(
        [_Ours("resource", "openstack", "gpuform.plugins.openstack", stands_in=True)]
        if find_spec("pulumi_openstack")
        else []
    ),
    _Ours(
        "resource", "pulumi-python", "pulumi.dynamic", stands_in=False
    ),  # part of the SDK, started as it says
    _Ours("resource", "gpuform", "gpuform.plugins.own", stands_in=False),
)


# Where only offline runs look, which do not look on PATH: no other run may take one for the real one. They
# win over a stand-in of the same name, for that one would ask for the cloud.
_OFFLINE = tuple(
    _Ours("resource", name, module, stands_in=False)
    for name, module in (
        ("aws", "gpuform.plugins.offline"),
        ("openstack", "gpuform.plugins.offline.openstack"),
    )
    if find_spec(f"pulumi_{name}")  # whoever uses one cloud need not have the other's SDK
)


_ONLY_OF = {"pulumi-resource-openstack": "openstack"}
"""Plugins that only stacks of one kind of cluster start; the word is in their stack files."""


_RESUMES = {"pulumi-resource-openstack": "openstack:"}
"""Stand-ins that note on this machine what they ask a cloud for, and the types whose creates they go on with.

The official plugins would ask again. (The stand-in of kubernetes needs no note: see ``checkpoint``.)
"""


@dataclass(frozen=True)
class Plugin:
    """A plugin that may be official; ``official`` is its executable, or None where our stand-in is used."""

    name: str
    version: str
    official: Path | None

    def starts_for(self, stack_file: Path) -> bool:
        """Whether runs of a stack use it."""
        word = _ONLY_OF.get(self.name)
        return not word or (stack_file.is_file() and word in stack_file.read_text(encoding="utf-8"))

    @property
    def notice(self) -> str:
        """The line that says so for a stand-in, else nothing."""
        if self.official:
            return ""
        return f"gpuform: stand-in for {self.name} {self.version} (the official plugin is not installed)"


def plugins(paths: Paths | None = None, offline: bool = False) -> list[Plugin]:
    """Every plugin that we have a stand-in for, with the official one where it is installed.

    Looks on PATH, next to the ``pulumi`` of these runs, and in the user's own PULUMI_HOME; starts nothing.
    """
    places = Places(paths or Paths.here())
    return [
        Plugin(ours.file, ours.version, _official(ours, places))
        for ours in _wanted(offline)
        if ours.stands_in
    ]


def resuming(paths: Paths) -> tuple[str, ...]:
    """How types begin whose interrupted creates the next update here goes on with."""
    found = (_RESUMES.get(plugin.name) for plugin in plugins(paths) if plugin.official is None)
    return tuple(type for type in found if type)


def install(places: Places) -> list[Plugin]:
    """Make every plugin known to the engine; returns ``plugins``. Run again it changes nothing."""
    state = plugins(places.paths, places.offline)
    official = {plugin.name: plugin.official for plugin in state}
    folder = places.home / "plugins"
    for ours in _wanted(places.offline):
        for other in folder.glob(f"{ours.kind}-{ours.name}-v*"):
            if other.name != ours.folder:
                shutil.rmtree(other)  # of an older version of ours: this PULUMI_HOME is nobody else's
        target = folder / ours.folder / ours.file
        found = None if _only_ours(ours, places.offline) else official.get(ours.file)
        if found is None:
            write(target, _launcher(ours.module), 0o755)
        else:
            link(target, found)
    if places.offline:
        write(places.answering / "aws", _launcher("gpuform.plugins.offline.aws"), 0o755)
        given = (places.paths.root, places.paths.cache, places.charts)
        write(places.finder, _launcher("gpuform.offline.charts", *given), 0o755)
    return state


def _only_ours(ours: _Ours, offline: bool) -> bool:
    """Whether an official plugin must not take its place: offline our language host finds the charts."""
    return ours in _OFFLINE or (offline and ours.kind == "language")


def _wanted(offline: bool) -> list[_Ours]:
    """The plugins of a run; offline ours in the place of any other of the same name."""
    instead = {one.file for one in _OFFLINE} if offline else set()
    return [one for one in _OURS if one.file not in instead] + (list(_OFFLINE) if offline else [])


def _launcher(module: str, *arguments: Path) -> str:
    # -P: the engine starts plugins in the program's folder, whose modules must not pass for ours; nor may
    # those of another checkout, which PYTHONPATH names for its program.
    words = " ".join(shlex.quote(str(word)) for word in (sys.executable, "-P", "-m", module, *arguments))
    return f'#!/bin/sh\nunset PYTHONPATH\nexec {words} "$@"\n'


def _official(ours: _Ours, places: Places) -> Path | None:
    searched = [entry for entry in os.get_exec_path() if Path(entry) != places.paths.shims]
    on_path = shutil.which(ours.file, path=os.pathsep.join(searched))
    if on_path:
        return Path(on_path).absolute()
    beside = places.pulumi.resolve().with_name(ours.file)
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    candidates = [beside] if ours.kind == "language" else []
    if home != places.home:
        candidates.append(home / "plugins" / ours.folder / ours.file)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)
