"""Checks of this machine; each finding names the command that fixes the problem."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.engine import plugins
from gpuform.stack.preflight.check import Finding, Verdict
from lab.plane import ControlPlane
from lab.toolchain import Toolchain, space
from lab.toolchain.catalogue import CATALOGUE, MAIN_JOB

_FROM = {
    "path": "from PATH",
    "plugin": "the official plugin",
    "package": "the distribution's package",
    "built": "built from its Go module",
}

__all__ = ["Finding", "Verdict", "findings"]


def findings(paths: Paths) -> Iterator[Finding]:
    """Check the machine; changes nothing and builds nothing."""
    toolchain = Toolchain(paths)
    yield _python()
    yield _disk(paths, toolchain)
    yield from _tools(toolchain)
    yield from _plugins()
    yield _control_plane(paths, toolchain)


def _python() -> Finding:
    return Finding("python", "PASS", ".".join(map(str, sys.version_info[:3])))


def _disk(paths: Paths, toolchain: Toolchain) -> Finding:
    missing = {CATALOGUE[name].module for name in MAIN_JOB if toolchain.locate(name).path is None}
    try:
        space.require(paths.cache, *missing)
    except InputError as error:
        return Finding("disk", "FAIL", error.fact, error.remedy)
    return Finding("disk", "PASS", "enough space for the missing tools" if missing else "no tool is missing")


def _tools(toolchain: Toolchain) -> Iterator[Finding]:
    for name in MAIN_JOB:
        found = toolchain.locate(name)
        if found.path is None:
            yield Finding(name, "FAIL", f"{found.version} is not built yet", "gpuform toolchain build")
        else:
            yield Finding(name, "PASS", f"{found.version}, {_FROM[found.source]}")


def _plugins() -> Iterator[Finding]:
    for plugin in plugins():
        if plugin.official:
            yield Finding(plugin.name, "PASS", f"official: {plugin.official}")
        elif plugin.source:
            yield Finding(plugin.name, "SKIP", f"not installed; built from {plugin.source}")
        else:
            yield Finding(plugin.name, "SKIP", "not installed; the project's own stand-in is used")


def _control_plane(paths: Paths, toolchain: Toolchain) -> Finding:
    status = ControlPlane(paths, toolchain).status()
    if status.ready:
        return Finding("control plane", "PASS", f"Kubernetes {status.kubernetes} at {status.server}")
    return Finding("control plane", "SKIP", "not running", "gpuform local start")
