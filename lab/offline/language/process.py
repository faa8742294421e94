"""Child processes of the language host; they must not outlive it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

GRACE_S = 3.0  # between asking a child to end and killing it
CHUNK = 64 * 1024  # bytes


@dataclass(frozen=True)
class Output:
    """A piece of a child's output, or, last of all, its exit code."""

    data: bytes = b""
    stderr: bool = False
    exit_code: int | None = None


class Children:
    """Starts child processes and tracks those that still run."""

    def __init__(self) -> None:
        self._running: set[Process] = set()

    async def end(self) -> None:
        """Terminate every running child, and kill those that do not exit within GRACE_S."""
        await asyncio.gather(*(self._end(process) for process in list(self._running)))

    async def run(self, command: Sequence[str], *, cwd: str, env: Mapping[str, str], request: bytes) -> int:
        """Run with our stdout and stderr, ``request`` on stdin. The exit code is negative for a signal."""
        process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=dict(env), stdin=PIPE)
        self._running.add(process)
        try:
            await process.communicate(request)
            return process.returncode or 0
        finally:
            await self._end(process)

    async def stream(
        self, command: Sequence[str], *, cwd: str, env: Mapping[str, str]
    ) -> AsyncIterator[Output]:
        """Run and yield output as it comes, the exit code last; ends the child if the reader stops."""
        process = await asyncio.create_subprocess_exec(
            *command, cwd=cwd, env=dict(env), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        self._running.add(process)
        queue: asyncio.Queue[Output | None] = asyncio.Queue(maxsize=64)
        assert process.stdout is not None
        assert process.stderr is not None
        streams = enumerate((process.stdout, process.stderr))
        readers = [asyncio.create_task(_pump(pipe, queue, stderr=bool(n))) for n, pipe in streams]
        try:
            open_streams = len(readers)
            while open_streams:
                output = await queue.get()
                if output is None:
                    open_streams -= 1
                else:
                    yield output
            yield Output(exit_code=await process.wait())
        finally:
            for reader in readers:
                reader.cancel()
            await self._end(process)

    async def _end(self, process: Process) -> None:
        self._running.discard(process)
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            _kill(process)
            await process.wait()
        except asyncio.CancelledError:
            _kill(process)
            raise


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()


async def _pump(stream: asyncio.StreamReader, queue: asyncio.Queue[Output | None], *, stderr: bool) -> None:
    while data := await stream.read(CHUNK):
        await queue.put(Output(data=data, stderr=stderr))
    await queue.put(None)
