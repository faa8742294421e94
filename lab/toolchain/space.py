"""Free disk space, checked before anything is fetched or built."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from gpuform.checkout import writable
from gpuform.checkout.errors import InputError
from lab.toolchain.tool import Module


def go_caches() -> tuple[Path, Path]:
    """Go's module cache and build cache, by Go's own rules; values set by ``go env -w`` are not read."""
    home = Path.home()
    gopath = os.environ.get("GOPATH", "").split(os.pathsep)[0] or home / "go"
    cache = os.environ.get("XDG_CACHE_HOME") or home / ".cache"
    return (
        Path(os.environ.get("GOMODCACHE") or Path(gopath) / "pkg" / "mod"),
        Path(os.environ.get("GOCACHE") or Path(cache) / "go-build"),
    )


def require_space(tools: Path, *modules: Module) -> None:
    """Raise InputError unless ``tools`` can be written and Go's build cache has room to build the modules.

    A module that Go has downloaded already counts as compiled: a build after ``clean`` needs no more space.
    """
    if modules:
        writable.require(tools, _remedy("GPUFORM_CACHE"))
    downloads, compiled = go_caches()
    megabytes = sum(module.mb for module in modules if not _downloaded(downloads, module))
    require_mb(compiled, megabytes, "GOMODCACHE and GOCACHE")


def require_mb(place: Path, megabytes: int, variable: str = "GPUFORM_CACHE") -> None:
    """Raise InputError unless that many MB (10^6 bytes) are free at ``place``, which ``variable`` moves."""
    free = shutil.disk_usage(_existing(place)).free
    if free < megabytes * 10**6:
        writable.require(place, _remedy(variable))  # a read-only file system can have no space, too
        fact = f"{free / 10**9:.1f} GB free at {place}, {megabytes / 1000:.1f} GB needed"
        raise InputError("toolchain", fact, f"free space or set {variable} to a place on a larger disk")


def _remedy(variable: str) -> str:
    return f"make it a writable folder, or set {variable} to one"


def _existing(place: Path) -> Path:
    return next(folder for folder in (place, *place.parents) if folder.exists())


def _downloaded(cache: Path, module: Module) -> bool:
    """Whether Go's module cache has the module; a capital letter in its path is ``!`` and the small one."""
    escaped = re.sub("[A-Z]", lambda letter: "!" + letter[0].lower(), module.module_path)
    return (cache / f"{escaped}@v{module.version}").is_dir()
