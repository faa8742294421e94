"""Parses configurations with NVIDIA's own types, in the helper process ``nvidia-config``."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from lab.simulator.world import Broken, Config

DEVICE_PLUGIN = "device-plugin"
MIG_PARTED = "mig-parted"
_LINE = 8 * 1024 * 1024


class HelperError(RuntimeError):
    """The helper does not run or does not answer."""


class NvidiaConfig:
    """One helper process, started on demand and restarted if it has ended; answers are cached by content."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._asked = 0

    async def read(self, kind: str, text: str, label: str) -> Config | Broken:
        """Parse ``text`` with NVIDIA's types. Raises HelperError."""
        answer = await self._answer(kind, text)
        if answer["error"] is not None:
            return Broken(f"unable to load config: error parsing config file: {answer['error']}")
        return Config(label, answer.get("strategy") or "none", answer["config"])

    async def _answer(self, kind: str, text: str) -> dict[str, Any]:
        key = (kind, hashlib.sha256(text.encode()).hexdigest())
        async with self._lock:
            if key not in self._known:
                if len(self._known) > 256:
                    self._known.clear()
                self._known[key] = await self._ask(kind, text)
            return self._known[key]

    async def _ask(self, kind: str, text: str) -> dict[str, Any]:
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked += 1
        request = json.dumps({"id": self._asked, "kind": kind, "yaml": text})
        try:
            process.stdin.write(request.encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), timeout=30)
        except (OSError, TimeoutError) as error:
            await self.close()
            raise HelperError(f"{self._binary}: {error!r}") from error
        if not line:
            await self.close()
            raise HelperError(f"{self._binary} ended without an answer")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    str(self._binary),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=_LINE,
                )
            except OSError as error:
                raise HelperError(f"{self._binary}: {error.strerror}") from error
        return self._process

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
