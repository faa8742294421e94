"""Files from a Go module that is not compiled: fetched once, checked against go.sum, then cached."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure
from lab.toolchain.golang import find_go, plain_environment
from lab.toolchain.progress import Reporter, reporting
from lab.toolchain.store import Store

_TIMEOUT_S = 300


@dataclass(frozen=True)
class Source:
    """A folder in a Go module; ``required_file`` is a file that it must contain.

    ``name`` is the name of the folder in the cache, ``title`` the name in messages.
    """

    name: str
    title: str
    module: str
    folder: Path
    required_file: str


def cached_folder(source: Source, pinned: Path, cache: Path) -> Path:
    """Folder with the files, of the version that ``pinned``/go.mod requires.

    Raises Failure if the module cannot be fetched, InputError if Go is missing.
    """
    store = Store(cache)
    version, digest = _pinned_version(source.module, pinned)
    folder = f"{source.name}-{version}-{digest}"
    target = store.tools / folder
    if not target.is_dir():
        with reporting(None) as report, store.lock(source.name, report):
            if not target.is_dir():
                _fetch(source, pinned, version, store, folder, report)
    return target


def _pinned_version(module: str, pinned: Path) -> tuple[str, str]:
    required = re.search(rf"{re.escape(module)} v(\S+)", (pinned / "go.mod").read_text(encoding="utf-8"))
    if not required:
        raise Failure(str(pinned / "go.mod"), f"does not require {module}", "restore it from the repository")
    return required[1], hashlib.sha256((pinned / "go.sum").read_bytes()).hexdigest()[:12]


def _fetch(
    source_spec: Source, pinned: Path, version: str, store: Store, folder: str, report: Reporter
) -> None:
    go = find_go(store, report)
    report.line(f"{source_spec.title} {version}: fetching the Go module {source_spec.module}")
    with store.scratch(source_spec.name) as scratch:
        for name in ("go.mod", "go.sum"):  # a copy, because go changes both files
            shutil.copyfile(pinned / name, scratch / name)
        source = _download(go, source_spec, version, scratch) / source_spec.folder
        ready = scratch / "ready"
        copy_files(source, ready)
        if not (ready / source_spec.required_file).is_file():
            fact = f"v{version} contains no {source_spec.folder / source_spec.required_file}"
            raise Failure(source_spec.module, fact, "pin a version that does")
        store.publish(ready, folder)


def copy_files(source: Path, target: Path) -> None:
    """Copy a folder of a module, without the read-only modes of the module cache."""
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def unpacked(go: Path, module: str, folder: Path) -> Path:
    """Folder of a module that the go.mod in ``folder`` requires and a build has fetched."""
    command = [str(go), "list", "-m", "-f", "{{.Dir}}", module]
    answer = subprocess.run(command, cwd=folder, env=plain_environment(), capture_output=True, text=True)
    if answer.returncode or not answer.stdout.strip():
        fact = f"go list ended with {answer.returncode}: {answer.stderr.strip()}"
        raise Failure(module, fact, "run it again")
    return Path(answer.stdout.strip())


def _download(go: Path, source: Source, version: str, folder: Path) -> Path:
    """Folder of the unpacked module; Go has compared its hash with go.sum."""
    query = f"{source.module}@v{version}"
    try:
        result = subprocess.run(
            [str(go), "mod", "download", "-json", query],
            cwd=folder,
            env=plain_environment(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        answer: dict[str, Any] = json.loads(result.stdout or "{}")
        reason = answer.get("Error") or result.stderr.strip()
    except (subprocess.TimeoutExpired, ValueError) as error:
        answer, reason = {}, str(error)
    if "Dir" not in answer:
        fact = f"are missing: go mod download {query}: {' '.join(str(reason).split())}"
        raise Failure(source.title, fact, "check the network, GOPROXY and HTTPS_PROXY")
    return Path(answer["Dir"])
