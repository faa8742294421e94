"""Folders: the project, its state, the installation, and the cache that all projects share."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from gpuform import INSTALLATION
from gpuform.checkout.errors import InputError

MAIN_STACK = "local"
"""The stack of `make up`: its control plane lies in the state folder itself."""
_PROGRAM = re.compile(r"^(from|import) gpuform\b.*\bprogram\b", re.MULTILINE)
_MAIN = re.compile(r"""^main: *["']?([^"'\s]+)""", re.MULTILINE)


@dataclass(frozen=True)
class Paths:
    """The folders of one project, seen from one stack; nothing here creates them.

    ``root`` has Pulumi.yaml and the stack files. ``state`` is disposable and belongs to this project;
    ``cache`` is shared by every project of this user and keyed by version inside. ``stack`` selects the
    embedded control plane: each stack that runs on this machine has its own
    (docs/adr/0017-a-control-plane-for-each-stack.md).
    """

    root: Path
    state: Path
    cache: Path
    stack: str = MAIN_STACK

    @classmethod
    def here(cls, stack: str = MAIN_STACK) -> Paths:
        """The project of the working directory or of a folder above. Raises InputError if there is none.

        ``GPUFORM_STATE`` and ``GPUFORM_CACHE`` override the two others.
        """
        if (root := _find_project()) is None:
            fact = "no Pulumi.yaml of a gpuform project here or above"
            remedy = "`cd` into a project, or write one: `gpuform new DIR`"
            raise InputError(str(Path.cwd()), fact, remedy)
        return cls._at(root, stack)

    @classmethod
    def anywhere(cls, stack: str = MAIN_STACK) -> Paths:
        """As `here`; without a project, the working directory is its root."""
        return cls._at(_find_project() or Path.cwd(), stack)

    @classmethod
    def _at(cls, root: Path, stack: str) -> Paths:
        try:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError:
            fact = f"is not set, and user {os.getuid()} has no home folder"
            raise InputError("HOME", fact, "set it to a folder that you can write") from None
        return cls(
            root=root,
            state=Path(os.environ.get("GPUFORM_STATE") or root / ".gpuform").resolve(),
            cache=Path(os.environ.get("GPUFORM_CACHE") or base / "gpuform").resolve(),
            stack=stack,
        )

    @property
    def is_checkout(self) -> bool:
        """Whether the project has the program itself."""
        return (self.root / "infra" / "incluster").is_dir()

    @property
    def installation(self) -> Path:
        """Folder of charts, roles, policies, Go modules and examples."""
        return self.root if self.is_checkout else INSTALLATION

    @property
    def prices(self) -> Path:
        """Folder of the price lists that `gpuform prices refresh` writes."""
        return self.root / ("infra/prices" if self.is_checkout else "prices")

    @property
    def planes(self) -> Path:
        """Folder of the control planes of every stack but ``MAIN_STACK``, by the name of the stack."""
        return self.state / "planes"

    @property
    def plane(self) -> Path:
        """Folder of the stack's embedded control plane."""
        return self.state if self.stack == MAIN_STACK else self.planes / self.stack

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the stack's embedded control plane, mode 0600."""
        return self.plane / "kubeconfig"

    @property
    def shims(self) -> Path:
        """Folder with the stand-in plugins, put on the PATH of engine runs only."""
        return self.state / "bin"

    @property
    def logs(self) -> Path:
        """Folder of the logs of engine runs."""
        return self.state / "logs"


def _find_project() -> Path | None:
    return next(filter(_is_project, (Path.cwd(), *Path.cwd().parents)), None)


def _is_project(folder: Path) -> bool:
    """Whether it is a checkout, or has a program that calls ours."""
    text = _read(folder / "Pulumi.yaml")
    main = _MAIN.search(text)
    program = folder / (main[1] if main else "") / "__main__.py"
    return text.startswith("name: gpuform\n") or bool(text and _PROGRAM.search(_read(program)))


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
