"""Keeping one kube-scheduler as the cluster wants it: none, this configuration, another one, again."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import yaml

from gpuform.packer.api import NAME, TROUBLE, Api

EVERY_S = 0.5  # between two looks
LONGEST_BACK_OFF_S = 10.0
_GRACE_S = 2.0
_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2), linux/prctl.h
_LIBC = ctypes.CDLL(None)


class Keeper:
    """One scheduler, which does not outlive this process."""

    def __init__(self, api: Api, program: Path, log: Path) -> None:
        """Looks at nothing yet; ``program`` lies in a folder of its own, where its files go."""
        self._api, self._program, self._log = api, program, log
        self._has: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._again_at, self._ended, self._said = 0.0, 0, ""

    def run(self, over: threading.Event) -> None:
        """Look at the cluster until told to stop, and leave nothing running."""
        try:
            while not over.is_set():
                try:
                    self.step(self._api.configuration())
                except (*TROUBLE, yaml.YAMLError) as error:
                    # The server is away or says no: what runs goes on.
                    self._say(f"{type(error).__name__}: {error}")
                over.wait(EVERY_S)
        finally:
            self._end()

    def step(self, wanted: str | None) -> None:
        """Bring the process in line with the wanted configuration."""
        if wanted != self._has:
            self._end()
            self._has, self._again_at, self._ended = wanted, 0.0, 0
        elif self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            self._again_at = time.monotonic() + min(2.0**self._ended, LONGEST_BACK_OFF_S)
            self._ended += 1
            self._say(f"{NAME} has ended with {code}; see {self._log}")
        if self._has is not None and self._process is None and time.monotonic() >= self._again_at:
            self._process = self._start(self._has)
            self._say(f"{NAME} runs")

    def _start(self, text: str) -> subprocess.Popen[bytes]:
        folder = self._program.parent
        config = yaml.safe_load(text)
        kubeconfig = folder / "kubeconfig"
        config["clientConnection"] = {
            **config.get("clientConnection", {}),
            "kubeconfig": str(kubeconfig),
        }
        _write_private(kubeconfig, yaml.safe_dump(self._kubeconfig()))
        _write_private(folder / "config.yaml", yaml.safe_dump(config))
        # There is one only, so that it need not wait for its own old lease; and nobody asks it on a port.
        command = [str(self._program), f"--config={folder / 'config.yaml'}"]
        command += ["--leader-elect=false", "--secure-port=0"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_end_with_parent
            )

    def _kubeconfig(self) -> dict[str, object]:
        """The account's own token: what the plan's roles do not allow fails here as it would elsewhere."""
        cluster = {"server": self._api.server, "certificate-authority-data": self._api.authority}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": NAME, "cluster": cluster}],
            "users": [{"name": NAME, "user": {"token": self._api.token()}}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
            "current-context": NAME,
        }

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _say(self, text: str) -> None:
        if text != self._said:
            print(text, file=sys.stderr, flush=True)
        self._said = text


def _end_with_parent() -> None:
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
