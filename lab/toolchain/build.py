"""Builds the tools of one Go module in one ``go build`` call, with progress and a log."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from gpuform.checkout.errors import Failure, InputError
from lab.toolchain.golang import plain_environment
from lab.toolchain.progress import Reporter
from lab.toolchain.tool import Module, Tool

_UPDATE_S = 0.5  # seconds between two updates
_LAST_LINES = 12
_UNREACHABLE = (
    "dial tcp",
    "no such host",
    "i/o timeout",
    "connection refused",
    "403 Forbidden",
    "proxyconnect",
)


class _OutputReader:
    """Reads what go prints: one line per package it compiles and one per module it downloads."""

    def __init__(self, stream: IO[str], log: Path) -> None:
        self.packages = 0
        self.downloads = 0
        self.last: list[str] = []
        self._stream = stream
        self._log = log
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._log.open("w") as log:
            for line in self._stream:
                log.write(line)
                log.flush()
                text = line.rstrip()
                self.last = [*self.last, text][-_LAST_LINES:]
                if text.startswith("go: downloading "):
                    self.downloads += 1
                elif text and " " not in text:
                    self.packages += 1

    def finish(self) -> None:
        self._thread.join(timeout=5)

    def summary(self) -> str:
        parts = [f"{self.downloads} modules downloaded"] if self.downloads else []
        parts += [f"{self.packages} packages"] if self.packages else []
        return "".join(f", {part}" for part in parts)

    def current_package(self) -> str:
        return f", at {self.last[-1]}" if self.last and " " not in self.last[-1] else ""


def build_command(go: Path, module: Module, tools: Sequence[Tool], output: Path) -> list[str]:
    """Arguments of the build, the same on every machine, so that the same sources give the same bytes.

    The linker leaves out debug information (``-w``); without it in compiled packages, too, Go's build cache
    is a quarter smaller.
    """
    flags = " ".join(("-s", "-w", *module.ldflags))
    return [
        *(str(go), "build", "-v", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"),
        *(("-tags", ",".join(module.tags)) if module.tags else ()),
        *("-ldflags", flags, "-o", f"{output}/"),
        *(tool.package for tool in tools),
    ]


def build(
    go: Path, module: Module, tools: Sequence[Tool], folder: Path, scratch: Path, log: Path, report: Reporter
) -> Path:
    """Build ``tools`` of the module in ``folder``; returns the folder with the binaries, below ``scratch``.

    Go uses the user's own caches, so a killed build is resumed. Raises Failure, which names the tools and the
    log.
    """
    output, work = scratch / "out", scratch / "work"
    output.mkdir()
    work.mkdir()
    names = ", ".join(tool.name for tool in tools)
    started = time.monotonic()
    report.line(f"{module.name} {module.displayed_version}: building {names}")
    process = subprocess.Popen(
        build_command(go, module, tools, output),
        cwd=folder,
        env=plain_environment() | _c_compiler(module) | {"GOTMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_end_with_parent(),
    )
    assert process.stdout is not None
    reader = _OutputReader(process.stdout, log)
    try:
        while process.poll() is None:
            report.update(
                f"{names} … {time.monotonic() - started:.0f} s{reader.summary()}{reader.current_package()}"
            )
            try:
                process.wait(timeout=_UPDATE_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        _interrupt(process)
        reader.finish()
    if process.returncode:
        raise _failure(names, reader.last, log, process.returncode)
    report.line(f"{names}: built in {time.monotonic() - started:.0f} s{reader.summary()}")
    return output


def _c_compiler(module: Module) -> dict[str, str]:
    """Environment for cgo; empty for a module without C. Raises InputError if PATH has no C compiler."""
    if not module.cgo:
        return {}
    for name in filter(None, (os.environ.get("CC"), "gcc", "clang", "cc")):
        if shutil.which(name):
            return {"CGO_ENABLED": "1", "CC": name}
    fact = f"{module.name} links {module.module_path}, which needs a C compiler, and PATH has none"
    raise InputError("toolchain", fact, "install gcc or clang, or set CC")


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Send SIGINT, on which go removes its temporary files; kill it after 10 seconds."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> Callable[[], None] | None:
    """On Linux, a call that makes the child get SIGINT when this process dies, even by kill -9."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: the child must only make the call
    return lambda: prctl(1, int(signal.SIGINT))  # 1 is PR_SET_PDEATHSIG, linux/prctl.h


def _failure(names: str, last: Sequence[str], log: Path, code: int) -> Failure:
    last_lines = "\n  ".join(last)
    if any(word in line for line in last for word in _UNREACHABLE):
        return Failure(
            names,
            f"the Go module proxy did not provide what the build needs:\n  {last_lines}\n",
            f"check the network, GOPROXY and HTTPS_PROXY; the whole output is in {log}",
        )
    if any("no space left on device" in line for line in last):
        return Failure(names, f"the disk is full:\n  {last_lines}\n", f"free space and run again; see {log}")
    how = f"by signal {-code}" if code < 0 else f"with {code}"
    remedy = f"the whole output is in {log}; compiled packages are kept"
    return Failure(names, f"go build ended {how}:\n  {last_lines}\n", remedy)
