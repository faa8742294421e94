"""A headless Chromium, controlled over its DevTools pipe: no port, no driver, no library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE_S = 60.0


def found() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Seen:
    """A loaded page: its width, its errors, and its requests to other resources."""

    width: int
    background: str
    troubles: list[str]
    requests: list[str]
    picture: bytes


@dataclass
class Browser:
    """Controls a running browser; ``events`` have not been read yet."""

    reads: int
    writes: int
    number: int = 0
    buffer: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)

    def look(self, file: Path, width: int, scheme: str, height: int = 900) -> Seen:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable", session)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", session, **size)
        dark = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", session, features=dark)
        self.events.clear()
        self.ask("Page.navigate", session, url=file.as_uri())
        self._wait("Page.loadEventFired", session)
        seen = Seen(
            width=int(self._value(session, "document.documentElement.scrollWidth")),
            background=str(self._value(session, "getComputedStyle(document.body).backgroundColor")),
            troubles=[_said(one) for one in self.events if one["method"] in _TROUBLES],
            requests=[
                one["params"]["request"]["url"]
                for one in self.events
                if one["method"] == "Network.requestWillBeSent"
                and one["params"]["request"]["url"] != file.as_uri()
            ],
            picture=base64.b64decode(self.ask("Page.captureScreenshot", session)["data"]),
        )
        self.ask("Target.closeTarget", targetId=target)
        return seen

    def _value(self, session: str, expression: str) -> Any:
        return self.ask("Runtime.evaluate", session, expression=expression)["result"]["value"]

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _wait(self, method: str, session: str) -> None:
        while not any(one["method"] == method and one["sessionId"] == session for one in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reads], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser says nothing"
            part = os.read(self.reads, 1 << 20)
            assert part, "the browser has gone"
            self.buffer += part
        head, _, self.buffer = self.buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(head)
        return answer


_TROUBLES = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


def _said(event: dict[str, Any]) -> str:
    return f"{event['method']}: {json.dumps(event['params'])[:1000]}"


@contextmanager
def started(program: str, folder: Path) -> Iterator[Browser]:
    """Start it with a new profile in ``folder``; it and all its children are ended afterwards."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command: Sequence[str] = (program, *FLAGS, f"--user-data-dir={folder}", "about:blank")
    # The pipes must be descriptors 3 and 4.
    script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", *command],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_in, ours_out)
    finally:
        os.close(ours_in)
        os.close(ours_out)  # it exits when its end of the pipe closes; its children may not
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
