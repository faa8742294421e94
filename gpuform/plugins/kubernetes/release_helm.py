"""The helm command line as a child process: its environment, its input, its errors.

Values and passwords go in through stdin: nothing secret is on a command line or, apart from the kubeconfig
of one run (a file of mode 0600 in a folder of mode 0700, removed after the run), on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuform import scratch
from gpuform.paths import Paths
from gpuform.plugins.handler import PluginError
from gpuform.plugins.kubernetes.kubeconfig import Access

_STOP_S = 30.0  # how long helm gets to write "failed" into the release after it was told to stop
_LOCK_S = 60.0  # how long to wait for the helm of a run that was killed a moment ago
_SHORT = 4  # a secret of fewer characters is not searched for in a message: it would match anywhere

# On Linux helm must not outlive the plugin: this small parent asks the kernel to tell it, then becomes helm.
_FOLLOW = "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,15);os.execv(sys.argv[1],sys.argv[1:])"


class HelmError(Exception):
    """helm ended with an error; ``str()`` is its reason, with every secret taken out."""


@dataclass(frozen=True)
class Chart:
    """A chart as helm is to find it: a local path, or a name in a repository, or an ``oci://`` reference."""

    reference: str
    version: str = ""
    repository: Mapping[str, str] | None = None

    def flags(self) -> list[str]:
        """The flags beside the reference, without the password, which never goes on a command line."""
        repo = self.repository or {}
        names = {"caFile": "--ca-file", "certFile": "--cert-file", "keyFile": "--key-file"}
        flags = [item for key, flag in names.items() if repo.get(key) for item in (flag, repo[key])]
        return flags + (["--version", self.version] if self.version else [])


def binary() -> str:
    """The helm to run: ``GPUFORM_HELM``, else the one on PATH; `PluginError` when there is none."""
    found = os.environ.get("GPUFORM_HELM") or shutil.which("helm")
    if not found or not Path(found).exists():
        raise PluginError("helm: not found; set GPUFORM_HELM, or put helm on PATH")
    return found


class Helm:
    """helm against the cluster and as the user that ``access`` names, whatever the environment says."""

    def __init__(self, access: Access, program: Path | None = None, state: Path | None = None) -> None:
        """Nothing is started and nothing is written yet; ``state`` is the folder of another checkout's."""
        self._access = access
        self._program = program
        self._home = (state or Paths.here().state) / "helm"
        self._lock: int | None = None

    async def run(
        self,
        *args: str,
        chart: Chart | None = None,
        values: Mapping[str, Any] | None = None,
        cluster: bool = True,
        cancelled: asyncio.Event | None = None,
        secrets: Iterable[str] = (),
    ) -> str:
        """Run ``helm args [chart]`` and return its stdout; ``values`` go to stdin as ``-f -``.

        When ``cancelled`` is set, helm is told to stop, and marks the release as failed. Raises `HelmError`.
        """
        hidden = tuple(secrets)
        with self.folder() as folder:
            command = list(args)
            if chart:
                command += await self._located(chart, folder, hidden)
            if cluster:
                command += self._reach(folder)
            body = b""
            if values is not None:
                command += ["-f", "-"]
                body = json.dumps(values).encode()
            return await self._start(command, body, folder, cancelled, hidden)

    @contextlib.asynccontextmanager
    async def alone(self, release: str) -> AsyncIterator[Helm]:
        """Hold the lock of one release (``namespace/name``) and give a `Helm` whose children hold it too.

        So the helm of a killed run is waited for. Raises `PluginError` when that takes over a minute.
        """
        with self._lock_file(release).open("w") as handle:
            for _ in range(int(_LOCK_S * 4)):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                await asyncio.sleep(0.25)
            else:
                raise PluginError(
                    f"release {release}: another helm that this checkout started is still at work on it; "
                    "wait for it or end it, and run again"
                )
            held = copy.copy(self)
            held._lock = handle.fileno()
            yield held

    def busy(self, release: str) -> bool:
        """Whether a helm that this checkout started is at work on the release now."""
        with self._lock_file(release).open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _lock_file(self, release: str) -> Path:
        key = f"{self._access.server}\n{release}"
        return self._private("locks") / hashlib.sha256(key.encode()).hexdigest()[:16]

    async def _located(self, chart: Chart, folder: Path, hidden: tuple[str, ...]) -> list[str]:
        repo = chart.repository or {}
        url, reference, password = repo.get("repo", ""), chart.reference, repo.get("password", "")
        login = ["--username", repo.get("username", ""), "--password-stdin"]
        if reference.startswith("oci://"):
            if password:
                host = urlsplit(reference).netloc
                await self._start(
                    ["registry", "login", host, *login], password.encode(), folder, None, hidden
                )
        elif url and password:
            add = ["repo", "add", "chosen", url, *login, *Chart("", repository=repo).flags()]
            await self._start(add, password.encode(), folder, None, hidden)
            reference = f"chosen/{reference}"
        elif url:
            return [reference, "--repo", url, *chart.flags()]
        return [reference, *chart.flags()]

    def _reach(self, folder: Path) -> list[str]:
        """A kubeconfig of this run only: one cluster, one user, one context."""
        access = self._access
        if access.problem:
            raise HelmError(f"configured Kubernetes cluster is unreachable: {access.problem}")
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "this", "cluster": access.cluster}],
            "users": [{"name": "this", "user": access.user}],
            "contexts": [{"name": "this", "context": {"cluster": "this", "user": "this"}}],
            "current-context": "this",
        }
        path = folder / "kubeconfig"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
            json.dump(document, handle)
        return ["--kubeconfig", str(path)]

    async def _start(
        self,
        args: list[str],
        body: bytes,
        folder: Path,
        cancelled: asyncio.Event | None,
        hidden: tuple[str, ...],
    ) -> str:
        command = [str(self._program or binary()), *args]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _FOLLOW, *command]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(folder),
            pass_fds=() if self._lock is None else (self._lock,),
            start_new_session=True,  # Ctrl-C is the engine's to pass on, as a cancel
        )
        output, errors = await _finished(process, body, cancelled)
        if process.returncode:
            reason = _reason(errors.decode(errors="replace")) or f"helm ended with {process.returncode}"
            raise HelmError(redact(reason, hidden))
        return output.decode()

    def _environment(self, folder: Path) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
        ours["HELM_CACHE_HOME"] = str(self._private("cache"))
        ours["HELM_CONFIG_HOME"] = str(folder / "config")
        ours["HELM_DATA_HOME"] = str(folder / "data")
        return ours

    def folder(self) -> contextlib.AbstractContextManager[Path]:
        """A private folder for as long as the context lasts; what a killed plugin left goes, too."""
        return scratch.folder(self._private("runs"))

    def _private(self, name: str) -> Path:
        folder = self._home / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder


async def _finished(
    process: asyncio.subprocess.Process, body: bytes, cancelled: asyncio.Event | None
) -> tuple[bytes, bytes]:
    """Wait for the process; a cancel, or the end of this task, tells it to stop and waits until it has."""
    work = asyncio.ensure_future(process.communicate(body))
    stop = asyncio.ensure_future((cancelled or asyncio.Event()).wait())
    try:
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        if not work.done():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await asyncio.wait({work}, timeout=_STOP_S)
        if not work.done():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return await work


def _reason(errors: str) -> str:
    """What helm says after its last ``Error:``; warnings about file modes and the like come before it."""
    return errors.rpartition("Error: ")[2].strip()


def redact(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the secrets that occur in it, the longest first."""
    for secret in sorted({item for item in secrets if len(item) >= _SHORT}, key=len, reverse=True):
        text = text.replace(secret, "[secret]")
    return text
