"""Stack locks in the file backend: our own, and removal of those that a killed run has left."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure

_EXIT_WAIT_S = 1.0  # an engine takes a moment to exit after its gpuform was killed
_WRITE_WAIT_S = 2.0  # a lock file without content is being written, or its writer was killed
_LOCKED = "the stack is currently locked by"
OWN_LOCKS: set[str] = set()
"""Names of the lock files that this process holds."""
_LOCK_OWNER = re.compile(r"created by (\S*)@(\S+) \(pid (\d+)\) at (\S+)")


class Locked(Failure):
    """Another run holds the stack, or may hold it from another host."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock, as recorded in the lock file."""

    pid: int
    host: str
    since: datetime
    user: str = "an unknown user"

    @property
    def description(self) -> str:
        """``process 12 of ada on host ci-7 since 2026-01-02 03:04:05 UTC``."""
        return (
            f"process {self.pid} of {self.user} on host {self.host} since {self.since:%Y-%m-%d %H:%M:%S} UTC"
        )


def release_dead(folder: Path, stack: str) -> list[str]:
    """Remove the stack's locks if their owner has exited; returns one line per removed lock.

    Raises Locked, naming process and command, if an owner still runs, and if it ran on another host, where
    this cannot be checked.
    """
    messages = []
    for path, owner in list_locks(folder):
        if path.name in OWN_LOCKS:
            continue
        if owner is not None and owner.host != socket.gethostname():
            raise Locked(f"stack {stack}", f"is locked by {owner.description}", _remedy(owner, stack))
        if owner is not None and (command := _running_command(owner)):
            fact = f"is being changed by {owner.description} ({Path(command.split()[0]).name})"
            raise Locked(f"stack {stack}", fact, _remedy(owner, stack))
        path.unlink(missing_ok=True)
        path.with_name(path.name + ".attrs").unlink(missing_ok=True)
        holder = f"process {owner.pid}, which is gone" if owner else "a run that was killed while writing it"
        messages.append(f"removed the lock on stack {stack} of {holder}")
    return messages


def own_lock_content() -> str:
    """The content of a lock that this process holds, as the engine writes it (its ``lockContent``)."""
    content = {
        "pid": os.getpid(),
        "username": getpass.getuser(),
        "hostname": socket.gethostname(),
        "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
    }
    return json.dumps(content)


def locked_failure(output: str, stack: str) -> Failure | None:
    """The Failure for a run that was stopped by another run's lock; None if the output names no lock.

    ``output`` is the engine's output. The lock stays: only the user can know that its owner has exited.
    """
    owners = [
        Owner(int(pid), host, datetime.fromisoformat(since).astimezone(UTC), user or "an unknown user")
        for user, host, pid, since in _LOCK_OWNER.findall(output)
    ]
    if _LOCKED not in output or not owners:
        return None
    fact = f"is locked by {', and by '.join(owner.description for owner in owners)}"
    return Failure(f"stack {stack}", fact, _remedy(owners[0], stack))


def _remedy(owner: Owner, stack: str) -> str:
    if owner.host != socket.gethostname():
        option = f"--owner-is-gone {owner.host}:{owner.pid}"
        return f"wait for it, or, if you know that it is gone, run 'gpuform recover {stack} {option}'"
    if _command(owner.pid):
        return f"wait for it to end, or stop it with 'kill -INT {owner.pid}'"
    return f"that process has exited: run 'gpuform recover {stack}'"


def is_running(owner: Owner) -> bool | None:
    """Whether the owner still runs; None for an owner on another host, which cannot be checked.

    A process that was just killed gets one second to exit.
    """
    return bool(_running_command(owner)) if owner.host == socket.gethostname() else None


def _running_command(owner: Owner) -> str:
    command = _command(owner.pid)
    deadline = time.monotonic() + _EXIT_WAIT_S
    while command and time.monotonic() < deadline:
        time.sleep(0.1)
        command = _command(owner.pid)
    return command


def list_locks(folder: Path) -> Iterator[tuple[Path, Owner | None]]:
    """Lock files and their owners; the owner is None if it was killed while it wrote the file."""
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        if path.suffix == ".attrs" or not path.is_file():
            continue
        owner = _read(path)
        if owner is None and time.time() - path.stat().st_mtime < _WRITE_WAIT_S:
            time.sleep(_WRITE_WAIT_S)
            owner = _read(path)
        if path.exists():
            yield path, owner


def _read(path: Path) -> Owner | None:
    try:
        return parse_owner(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def parse_owner(text: str) -> Owner | None:
    """Owner in the text of a lock file; None if the text is incomplete."""
    try:
        content: dict[str, Any] = json.loads(text)
        since = datetime.fromisoformat(content["timestamp"]).astimezone(UTC)
        return Owner(
            int(content["pid"]),
            str(content["hostname"]),
            since,
            str(content.get("username") or "an unknown user"),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _command(pid: int) -> str:
    """Command line of a running pulumi or gpuform; empty if it has exited or its PID was reused."""
    if Path("/proc/self").exists():
        try:
            command_line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return ""
    else:
        result = subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        command_line = result.stdout.split()
    # gpuform is a Python script: its interpreter comes first.
    names = [Path(word).name for word in command_line[:2]]
    is_own = any(name.startswith("pulumi") for name in names[:1]) or "gpuform" in names
    return " ".join(command_line).strip() if is_own else ""
