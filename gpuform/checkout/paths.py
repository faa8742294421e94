"""Folders: the checkout, its state, and the cache that all checkouts share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gpuform.checkout.errors import InputError

MAIN_STACK = "local"
"""The stack of `make up`: its control plane lies in the state folder itself."""


@dataclass(frozen=True)
class Paths:
    """The folders of one checkout, seen from one stack; nothing here creates them.

    ``state`` is disposable and belongs to this checkout; ``cache`` is shared by every checkout of this user
    and keyed by version inside. ``stack`` selects the embedded control plane: each stack that runs on this
    machine has its own (docs/adr/0017-a-control-plane-for-each-stack.md).
    """

    root: Path
    state: Path
    cache: Path
    stack: str = MAIN_STACK

    @classmethod
    def here(cls, stack: str = MAIN_STACK) -> Paths:
        """The checkout of the working directory, else the one that this package is installed from.

        ``GPUFORM_STATE`` and ``GPUFORM_CACHE`` override the two others.
        """
        root = next(
            filter(_is_checkout, (Path.cwd(), *Path.cwd().parents)), Path(__file__).resolve().parents[2]
        )
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


def _is_checkout(folder: Path) -> bool:
    project = folder / "Pulumi.yaml"
    return project.is_file() and project.read_text().startswith("name: gpuform\n")
