"""The checkout that a change is compared with: a folder, or a commit of the repository."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuform.checkout.errors import InputError

_NOT_OURS = shutil.ignore_patterns(".git", ".venv", ".gpuform", "node_modules", "__pycache__", ".*_cache")


@contextmanager
def checkout(root: Path, base: str) -> Iterator[Path]:
    """A temporary copy of ``base``, with the packages that ``root`` has installed.

    Folder and repository are only read. InputError if ``base`` is neither a checkout nor a commit.
    """
    with TemporaryDirectory(prefix="gpuform-base-") as temporary:
        folder = Path(temporary) / "base"
        if (Path(base) / "Pulumi.yaml").is_file():
            shutil.copytree(base, folder, ignore=_NOT_OURS)
        else:
            with tarfile.open(fileobj=io.BytesIO(_archive(root, base))) as files:
                # Python 3.11.2, Debian 12's own, has neither the attribute nor extractall(filter=).
                files.extraction_filter = getattr(tarfile, "data_filter", None)
                files.extractall(folder)  # noqa: S202
        if not (folder / ".venv").exists() and (root / ".venv").exists():
            (folder / ".venv").symlink_to((root / ".venv").resolve())
        yield folder


def _archive(root: Path, commit: str) -> bytes:
    command = ["git", "-C", str(root), "archive", "--format=tar", f"{commit}^{{commit}}"]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (subprocess.CalledProcessError, FileNotFoundError):
        fact = f"{commit} is neither a checkout of this project nor a commit of its repository"
        raise InputError("--base", fact, "name a folder with Pulumi.yaml, or a commit") from None
