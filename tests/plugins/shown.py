"""An engine that keeps what it would show to the user."""

from __future__ import annotations

from gpuform.plugins.handler import Engine


class Log(Engine):
    """What a handler has said so far, a line each."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    async def log(self, text: str, *, severity: int, urn: str = "", ephemeral: bool = False) -> None:
        self.lines.append(text)
