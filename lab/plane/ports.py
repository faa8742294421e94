"""Loopback ports: chosen once per checkout and then kept."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable
from pathlib import Path

from gpuform.checkout.errors import InputError

MEMBER_PORTS = ("kube-apiserver", "etcd", "etcd-peer", "kube-controller-manager", "kube-scheduler", "kwok")
SIDECAR_PORTS = ("simulator-metrics", "prometheus", "kube-state-metrics", "kube-state-metrics-telemetry")
"""Ports of the programs beside the members; kwokctl does not get them."""
NAMES = (*MEMBER_PORTS, *SIDECAR_PORTS)
# Below the kernel's default range for outgoing connections (32768-60999) and Kubernetes' NodePorts
# (30000-32767): a port from those may be in use just when a stopped cluster wants it back.
FIRST, LAST, BLOCK = 20000, 29999, 10
_LISTEN = "0A"  # tcp state in /proc/net/tcp


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:port now.

    A port in TIME_WAIT counts as free, as it does to a server written in Go.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(state: Path, taken: Iterable[int] = ()) -> dict[str, int]:
    """Consecutive free ports for all members. Raises InputError if no block is free.

    The search starts at a hash of the state folder's path: two checkouts seldom collide even while one of
    them is stopped, and a deleted cluster comes back on its old port.
    """
    avoid = set(taken)
    blocks = (LAST + 1 - FIRST) // BLOCK
    start = int.from_bytes(hashlib.sha256(str(state).encode()).digest()[:8]) % blocks
    for step in range(blocks):
        base = FIRST + (start + step) % blocks * BLOCK
        block = range(base, base + len(NAMES))
        if avoid.isdisjoint(block) and all(is_free(port) for port in block):
            return dict(zip(NAMES, block, strict=True))
    raise InputError(
        "embedded control plane", f"no block of free ports in {FIRST}-{LAST}", "free some of them"
    )


def require_free(port: int, by_option: bool) -> None:
    """Raise InputError for an apiserver port outside 1024-65535, or held by another process (named)."""
    subject = f"--port {port}" if by_option else f"embedded control plane, port {port} of its kubeconfig"
    if not 1024 <= port <= 65535:
        raise InputError(subject, "not a port that a user may listen on", "use one of 1024-65535")
    if is_free(port):
        return
    remedy = "end that process, or use another port: gpuform local start --port N"
    if not by_option:
        remedy += "; or start from scratch: gpuform local stop --delete"
    raise InputError(subject, f"taken by {port_holder(port)}", remedy)


def port_holder(port: int) -> str:
    """The process that listens on a loopback port, if this user may see it: ``process 71 (python3)``."""
    inodes = _listeners(port)
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(entry.readlink()) in inodes:
                process = entry.parent.parent
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:
            continue  # closed meanwhile, or another user's
    return "another process"


def _listeners(port: int) -> set[str]:
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{columns[9]}]")
    return sockets
