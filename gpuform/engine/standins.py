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

from gpuform import INSTALLATION
from gpuform.checkout.paths import Paths
from gpuform.engine.files import EngineFiles, Tools, link, tool, write
from infra.versions import OPENSTACK_PROVIDER, PULUMI, PULUMI_KUBERNETES_MODULE

_DAY = PULUMI_KUBERNETES_MODULE.split("-")[1]
_SOURCES = {
    "kubernetes": f"source of {_DAY[:4]}-{_DAY[4:6]}-{_DAY[6:8]}",
    "openstack": f"terraform-provider-openstack {OPENSTACK_PROVIDER}, with Magnum's types alone",
}
"""What the toolchain builds a provider from."""
_REAL_KIND = re.compile(r"kind:.*\b(aws|openstack|existing|hosts)\b")
_SDKS = ("kubernetes", "aws", "openstack")
"""Providers with an SDK package of their own, which determines the version."""


@dataclass(frozen=True)
class _OwnPlugin:
    kind: str
    name: str
    module: str = ""
    tool: str = ""
    is_standin: bool = False

    @property
    def file(self) -> str:
        return f"pulumi-{self.kind}-{self.name}"

    @property
    def keyword(self) -> str:
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


_OWN_PLUGINS = (
    _OwnPlugin("language", "python", "lab.offline.language", is_standin=True),
    _OwnPlugin("resource", "kubernetes", tool="pulumi-resource-kubernetes", is_standin=True),
    # Only if the SDK (gpuform[openstack]) is installed, because it requests its own version.
    *(
        [_OwnPlugin("resource", "openstack", tool="pulumi-resource-openstack", is_standin=True)]
        if find_spec("pulumi_openstack")
        else []
    ),
    _OwnPlugin("resource", "pulumi-python", "pulumi.dynamic"),  # part of the SDK
    _OwnPlugin("resource", "gpuform", "gpuform.provider.own"),
)


# Only for offline runs, which ignore PATH: other runs must not use a stand-in of a cloud, and offline runs
# must not use a plugin that calls the cloud.
_OFFLINE_PLUGINS = tuple(
    plugin
    for plugin in (
        _OwnPlugin("resource", "aws", "lab.offline.aws"),
        _OwnPlugin("resource", "openstack", tool="pulumi-openstack-offline"),
    )
    if find_spec(f"pulumi_{plugin.name}")  # users of one cloud need not install the other's SDK
)


@dataclass(frozen=True)
class Plugin:
    """A plugin that has an official version; ``official`` is its executable, or None if not installed.

    ``source`` is what the toolchain builds it from; empty if our stand-in is used. ``keyword`` is in the
    stack files that need the plugin.
    """

    name: str
    version: str
    official: Path | None
    source: str = ""
    keyword: str = ""

    def is_needed_by(self, stack_file: Path) -> bool:
        return self.keyword in (_read(stack_file) if self.keyword else "")

    def notice(self, stack_file: Path, offline: bool = False) -> str:
        """Notice for runs of a stack that reaches beyond this machine, if the plugin is not official.

        `gpuform doctor` lists the plugins for every stack. The source of January 2026 adopts an object that
        exists already (pulumi-kubernetes PR 4278).
        """
        if self.official or offline or not is_real(stack_file) or not self.is_needed_by(stack_file):
            return ""
        if not self.source:
            return f"gpuform: stand-in for {self.name} {self.version} (the official plugin is not installed)"
        text = f"gpuform: {self.name} is built from {self.source}, not the official {self.version}"
        if self.keyword:
            return text
        return (
            f"{text}; warning: a create adopts an existing object of the same name, and renaming a "
            "resource that keeps its metadata.name deletes its object. Install the official one with "
            f"'pulumi {' '.join(install_arguments(self.name, self.version))}'"
        )


def is_real(stack_file: Path) -> bool:
    """Whether a stack reaches beyond this machine: a cloud, own hosts or an existing cluster."""
    return bool(_REAL_KIND.search(_read(stack_file)))


def plugins(paths: Paths, offline: bool = False) -> list[Plugin]:
    """Every plugin that has an official version, with its executable if that is installed.

    Looks on PATH, next to the ``pulumi`` of these runs, in the user's own PULUMI_HOME, and among the tools;
    starts nothing.
    """
    files = EngineFiles(paths)
    return [
        Plugin(own.file, own.version, _official_path(own, files), _SOURCES.get(own.name, ""), own.keyword)
        for own in _run_plugins(offline)
        if own.is_standin
    ]


def install(files: EngineFiles, tools: Tools, stack: str) -> None:
    """Install every plugin that the stack needs; idempotent. Errors as ``Tools.path``."""
    file = files.paths.root / f"Pulumi.{stack}.yaml"
    declared, is_local = _read(file), files.offline or not is_real(file)
    official = {plugin.name: plugin.official for plugin in plugins(files.paths, files.offline)}
    folder = files.home / "plugins"
    for plugin in _run_plugins(files.offline):
        for old in folder.glob(f"{plugin.kind}-{plugin.name}-v*"):
            if old.name != plugin.folder:
                shutil.rmtree(old)  # an older version of ours: only gpuform uses this PULUMI_HOME
        if plugin.keyword not in declared:
            continue
        target = folder / plugin.folder / plugin.file
        # On this machine no official language host: ours finds the charts.
        use_official = plugin not in _OFFLINE_PLUGINS and not (is_local and plugin.kind == "language")
        path = official.get(plugin.file) if use_official else None
        if path is None and plugin.tool:
            path = tool(files, tools, plugin.tool)
        if path is None:
            write(target, _launch_script(plugin.module), 0o755)
        elif plugin.kind == "resource":
            write(target, _follow_script(path), 0o755)
        else:
            link(target, path)
        if plugin.kind == "resource" and not files.offline:
            _write_shim(plugin, files)
    if files.offline:
        write(files.offline_commands / "aws", _launch_script("lab.offline.aws.aws"), 0o755)
    if is_local:
        folders = (files.paths.installation, files.paths.cache, files.charts)
        write(files.chart_finder, _launch_script("lab.offline.charts", *folders), 0o755)


def _run_plugins(offline: bool) -> list[_OwnPlugin]:
    replaced = {plugin.file for plugin in _OFFLINE_PLUGINS} if offline else set()
    kept = [plugin for plugin in _OWN_PLUGINS if plugin.file not in replaced]
    return kept + (list(_OFFLINE_PLUGINS) if offline else [])


def _launch_script(module: str, *arguments: Path) -> str:
    # -P and our PYTHONPATH: modules in the program's folder, where the engine starts plugins, and those of
    # another checkout must not shadow ours. The language host passes PYTHONPATH on to the program.
    words = " ".join(shlex.quote(str(word)) for word in (sys.executable, "-P", "-m", module, *arguments))
    exports = "GPUFORM_PYTHONPATH=${PYTHONPATH-}\nexport GPUFORM_PYTHONPATH\n"
    own = shlex.quote(str(INSTALLATION))
    return f'#!/bin/sh\n{exports}PYTHONPATH={own}\nexport PYTHONPATH\nexec {words} "$@"\n'


def _read(stack_file: Path) -> str:
    return stack_file.read_text(encoding="utf-8") if stack_file.is_file() else ""


def _follow_script(official: Path) -> str:
    words = [sys.executable, "-I", "-S", Path(__file__).with_name("follow.py"), official]
    return f'#!/bin/sh\nexec {" ".join(shlex.quote(str(word)) for word in words)} "$@"\n'


def _write_shim(plugin: _OwnPlugin, files: EngineFiles) -> None:
    """Put the launcher before a plugin on PATH, which the engine prefers to those of its home."""
    shim = files.paths.shims / plugin.file
    if on_path := _on_path(plugin, files):
        write(shim, _follow_script(on_path), 0o755)
    else:
        shim.unlink(missing_ok=True)


def _on_path(plugin: _OwnPlugin, files: EngineFiles) -> Path | None:
    folders = [entry for entry in os.get_exec_path() if Path(entry) != files.paths.shims]
    path = shutil.which(plugin.file, path=os.pathsep.join(folders))
    return Path(path).absolute() if path else None


def _official_path(plugin: _OwnPlugin, files: EngineFiles) -> Path | None:
    if on_path := _on_path(plugin, files):
        return on_path
    sibling = (files.paths.shims / "pulumi").resolve().with_name(plugin.file)
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    candidates = [sibling] if plugin.kind == "language" else []
    if home != files.home:
        candidates.append(home / "plugins" / plugin.folder / plugin.file)
    if plugin.tool:
        candidates.append(downloaded_path(files.paths.cache, plugin.file, plugin.version))
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def downloaded_path(cache: Path, name: str, version: str) -> Path:
    return cache / "tools" / f"{name}-{version}-plugin" / name


def install_arguments(name: str, version: str) -> list[str]:
    """Arguments of ``pulumi`` that install a plugin."""
    kind, _, plugin = name.removeprefix("pulumi-").partition("-")
    return ["plugin", "install", kind, plugin, version]
