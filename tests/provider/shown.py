from __future__ import annotations

from gpuform.provider.handler import Engine


class Log(Engine):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    async def log(self, text: str, *, severity: int, urn: str = "", ephemeral: bool = False) -> None:
        self.lines.append(text)
