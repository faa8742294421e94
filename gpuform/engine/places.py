"""Where engine runs of one checkout keep their things, and which tools they use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuform.paths import Paths


class Tools(Protocol):
    """What this package needs of ``gpuform.toolchain.Toolchain``."""

    def path(self, name: str) -> Path:
        """Absolute path of the tool; gets it first if it is missing."""


@dataclass(frozen=True)
class Places:
    """Folders and files below the checkout's state; all disposable, none created here."""

    paths: Paths
    offline: bool = False

    @property
    def folder(self) -> Path:
        """Everything below belongs to the engine."""
        return self.paths.state / "engine"

    @property
    def home(self) -> Path:
        """PULUMI_HOME of these runs: plugins, workspaces, the engine's own logs."""
        return self.folder / ("offline-home" if self.offline else "home")

    @property
    def backend(self) -> Path:
        """The file backend: checkpoints, locks, history. What runs offline made up must not pass for real."""
        return self.folder / ("offline" if self.offline else "backend")

    @property
    def answering(self) -> Path:
        """Folder that comes first on the PATH of offline runs: ``aws`` as they have it."""
        return self.folder / "offline-commands"

    @property
    def finder(self) -> Path:
        """The command that prints the folder of a stand-in for a chart."""
        return self.answering / "find-chart"

    @property
    def charts(self) -> Path:
        """Stand-ins for charts that offline runs cannot fetch."""
        return self.folder / "charts"

    @property
    def project(self) -> Path:
        """A project folder with nothing but a name, to create stacks from."""
        return self.folder / "project"

    @property
    def runs(self) -> Path:
        """A folder per run under way, see :mod:`gpuform.scratch`."""
        return self.folder / "runs"

    @property
    def pulumi(self) -> Path:
        """Link to the real pulumi that the wrapper of that name in ``Paths.shims`` starts."""
        return self.folder / "pulumi"

    def stack_file(self, stack: str) -> Path:
        """The copy of the stack file that the engine may write into."""
        return self.folder / f"Pulumi.{stack}.yaml"

    def checkpoint(self, project: str, stack: str) -> Path:
        """State of one stack."""
        return self.backend / ".pulumi" / "stacks" / project / f"{stack}.json"

    def locks(self, project: str, stack: str) -> Path:
        """Folder of the stack's lock files; usually not there."""
        return self.backend / ".pulumi" / "locks" / "organization" / project / stack


def tool(places: Places, tools: Tools, name: str) -> Path:
    """Path of a tool, past our own wrappers and links.

    After ``eval "$(gpuform local env)"`` these come first on PATH, and the toolchain takes them for tools.
    """
    found = tools.path(name)
    if found.parent == places.paths.shims:
        link = places.pulumi if name == "pulumi" else places.paths.shims / name
        return link.resolve()
    return found


def write(path: Path, content: str, mode: int) -> None:
    """Put a file in place in one step; a reader sees the old content or the new. Unchanged files stay."""
    if path.is_file() and not path.is_symlink() and path.read_text(encoding="utf-8") == content:
        path.chmod(mode)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(content, encoding="utf-8")
    beside.chmod(mode)
    beside.replace(path)


def link(path: Path, target: Path) -> None:
    """Put a symbolic link in place in one step."""
    if path.is_symlink() and path.readlink() == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(path)
