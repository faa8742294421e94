"""Files and tools of the engine runs of one checkout."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuform.checkout.paths import Paths


class Tools(Protocol):
    """The part of ``lab.toolchain.Toolchain`` that its users need."""

    def ensure(self, *names: str, progress: Callable[[str], None]) -> None: ...

    def path(self, name: str) -> Path:
        """Absolute path of the tool, which is fetched first if it is missing."""


@dataclass(frozen=True)
class EngineFiles:
    """Folders and files below the checkout's state; all disposable, none created here."""

    paths: Paths
    offline: bool = False

    @property
    def folder(self) -> Path:
        return self.paths.state / "engine"

    @property
    def home(self) -> Path:
        """PULUMI_HOME of these runs: plugins, workspaces, the engine's own logs."""
        return self.folder / ("offline-home" if self.offline else "home")

    @property
    def backend(self) -> Path:
        """The file backend: checkpoints, locks, history. Offline runs, with made-up state, have their own."""
        return self.folder / ("offline" if self.offline else "backend")

    @property
    def offline_commands(self) -> Path:
        """First folder on the PATH of offline runs, with their stand-in for ``aws``."""
        return self.folder / "offline-commands"

    @property
    def chart_finder(self) -> Path:
        """Command that prints the folder of a chart's stand-in."""
        return self.offline_commands / "find-chart"

    @property
    def charts(self) -> Path:
        """Stand-ins for charts that offline runs cannot fetch."""
        return self.folder / "charts"

    @property
    def runs(self) -> Path:
        """One folder per running run, see :mod:`gpuform.checkout.scratch`."""
        return self.folder / "runs"

    def stack_file(self, stack: str) -> Path:
        """The copy of the stack file that the engine may write into."""
        return self.folder / f"Pulumi.{stack}.yaml"

    def checkpoint(self, project: str, stack: str) -> Path:
        return self.backend / ".pulumi" / "stacks" / project / f"{stack}.json"

    def locks(self, project: str, stack: str) -> Path:
        """Folder of the stack's lock files; usually missing."""
        return self.backend / ".pulumi" / "locks" / "organization" / project / stack


def tool(files: EngineFiles, tools: Tools, name: str) -> Path:
    """Path of the real tool behind our own links.

    After ``eval "$(gpuform local env)"`` these come first on PATH, and the toolchain mistakes them for tools.
    """
    path = tools.path(name)
    return path.resolve() if path.parent == files.paths.shims else path


def write(path: Path, content: str, mode: int) -> None:
    """Write a file atomically; an unchanged file is not written."""
    if path.is_file() and not path.is_symlink() and path.read_text(encoding="utf-8") == content:
        path.chmod(mode)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(content, encoding="utf-8")
    temporary.chmod(mode)
    temporary.replace(path)


def link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
