"""Runs one process while an object exists in the cluster, as a Deployment runs its pod."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import httpx

from gpuform.checkout.errors import Failure
from lab.rehearse.children import end
from lab.simulator.api import Api

EVERY_S = 0.5  # between two looks
LONGEST_BACK_OFF_S = 10.0  # a kubelet goes up to five minutes, too long here

Wanted = TypeVar("Wanted")
TROUBLE = (Failure, httpx.HTTPError, OSError, ValueError, KeyError, IndexError)


class Following(Generic[Wanted]):
    """Reads the cluster from a thread of its own while the context lasts.

    ``look`` returns what is wanted, None for nothing; ``start`` starts a process for it. The process is
    restarted when something else is wanted and, with a back-off, when it has exited by itself. An error, such
    as a cluster that does not answer, is in ``trouble`` and in the log, and leaves things as they are.
    """

    def __init__(
        self,
        kubeconfig: Path,
        look: Callable[[Api], Awaitable[Wanted | None]],
        start: Callable[[Wanted], subprocess.Popen[bytes]],
        log: Path,
    ) -> None:
        self._kubeconfig, self._look, self._start, self.log = kubeconfig, look, start, log
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = 0
        self.trouble = ""

    @property
    def running(self) -> bool:
        process = self.process
        return process is not None and process.poll() is None

    def __enter__(self) -> Following[Wanted]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process through its thread: the thread that started it has to outlive it."""
        self._over.set()
        self._thread.join(timeout=60)

    def _follow(self) -> None:
        has: Wanted | None = None
        again_at = 0.0
        try:
            with asyncio.Runner() as runner:
                api = Api(self._kubeconfig)
                while not self._over.wait(EVERY_S):
                    try:
                        has, again_at = self._step(runner.run(self._read(api)), has, again_at)
                        self.trouble = "" if self.running or not has else self.trouble
                    except TROUBLE as error:
                        self._say(
                            str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
                        )
                runner.run(api.close())
        finally:
            self._end()

    async def _read(self, api: Api) -> Wanted | None:
        return await self._look(api)

    def _step(
        self, wanted: Wanted | None, has: Wanted | None, again_at: float
    ) -> tuple[Wanted | None, float]:
        """Make the process match ``wanted``; returns what it runs, and when it may be started again."""
        if wanted != has:
            self._end()
            again_at = 0.0
            self.ended = 0
        elif wanted is None or self.running:
            return has, again_at
        elif self.process is not None:
            self._say(f"ended with {self.process.returncode}")
            self.process = None
            self.ended += 1
            return has, time.monotonic() + min(2.0 ** (self.ended - 1), LONGEST_BACK_OFF_S)
        if wanted is not None and time.monotonic() >= again_at:
            self.process = self._start(wanted)
        return wanted, again_at

    def _end(self) -> None:
        if self.process is not None:
            end(self.process)
            self.process = None

    def _say(self, text: str) -> None:
        if text != self.trouble:
            with self.log.open("a", encoding="utf-8") as log:
                log.write(f"{text}\n")
        self.trouble = text
