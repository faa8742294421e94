"""What `gpuform local status` shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Member:
    """One process of the control plane.

    ``rss_bytes`` is the resident set from ``/proc/<pid>/statm`` in bytes, the binary's pages included; 0 when
    it does not run. ``port`` is the loopback port it serves on, None where it serves nothing.
    """

    name: str
    pid: int | None
    running: bool
    rss_bytes: int
    port: int | None


@dataclass(frozen=True)
class Status:
    """Members in the order in which they depend on each other, and how to reach the API.

    ``kubernetes`` is the version that the server itself reports, such as ``v1.34.4``; None if it does not
    answer within a second. ``ready`` is the server's own ``/readyz``. ``unmonitored`` lists what is not as
    declared in monitoring.
    """

    members: tuple[Member, ...]
    kubeconfig: Path
    server: str | None
    ready: bool
    kubernetes: str | None
    unmonitored: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether every member runs; says nothing of readiness."""
        return all(member.running for member in self.members)
