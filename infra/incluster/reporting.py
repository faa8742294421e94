"""Output of the health loop: audit log, tickets, and its own metrics.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from infra.incluster.cluster import MAX_NAME, format_time

NAME = "gpuform-health"

Json = dict[str, Any]

REASONS = {
    "observe": ("Warning", "GpuFaultObserved"),
    "cordon": ("Warning", "GpuNodeCordoned"),
    "ticket": ("Warning", "GpuTicketOpened"),
    "withhold": ("Warning", "GpuActionWithheld"),
    "note": ("Warning", "GpuFaultNoted"),
    "restore": ("Normal", "GpuTaintRestored"),
    "wait": ("Normal", "GpuNodeNotReturned"),
    "lift": ("Normal", "GpuNodeReturned"),
    "open": ("Warning", "GpuHealthBreakerOpened"),
    "close": ("Normal", "GpuHealthBreakerClosed"),
}
"""Type and reason of the event of each action."""


def line(now: float, **fields: Any) -> None:
    """Print one JSON line of the audit log."""
    print(json.dumps({"at": format_time(now), "program": NAME, **fields}, sort_keys=True), flush=True)


def ticket_name(node: str) -> str:
    """Name of the ConfigMap with the node's ticket."""
    name = f"gpu-ticket-{node}"
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 9]}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"


def ticket(node: str, pool: str, kind: str, faults: list[str], now: float) -> dict[str, str]:
    """Data of the ticket: ``ticket.md`` for people, ``ticket.json`` for programs."""
    task = "Reset the GPU, or reboot the machine."
    if kind == "replace":
        task = "Reboot the machine; if the fault recurs, have the GPU or the machine replaced."
    data = {
        "node": node,
        "pool": pool,
        "class": kind,
        "faults": faults,
        "opened": format_time(now),
        "do": task,
    }
    command = f"kubectl annotate node {node} gpuform.io/gpu-repaired='what was done'"
    text = [f"# Node {node}: broken GPU (class {kind})", "", f"Pool {pool}; seen at {format_time(now)}.", ""]
    text += [*(f"- {fault}" for fault in faults), "", task, ""]
    text += ["No new pods are scheduled to the node; running pods stay until they end. First drain it:", ""]
    text += [f"    kubectl drain {node} --ignore-daemonsets --delete-emptydir-data", ""]
    text += ["After the repair, report it; the taint is removed after ten minutes without a fault:", ""]
    text += [f"    kubectl uncordon {node}", f"    {command}", ""]
    return {"ticket.json": json.dumps(data, indent=1, sort_keys=True) + "\n", "ticket.md": "\n".join(text)}


class Metrics:
    """The loop's metrics, in Prometheus' text format."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._actions: Counter[tuple[str, str, str, str]] = Counter()
        self._gauges: dict[str, float] = {}

    def count(self, node: str, kind: str, action: str, result: str) -> None:
        with self._lock:
            self._actions[node, kind, action, result] += 1

    def set(self, **gauges: float) -> None:
        """Set gauges by their names without the prefix ``gpuform_health_``."""
        with self._lock:
            self._gauges |= gauges

    def get(self, name: str) -> float:
        """One gauge; 0 before it is set."""
        with self._lock:
            return self._gauges.get(name, 0.0)

    def text(self) -> str:
        with self._lock:
            lines = ["# TYPE gpuform_health_actions_total counter"] if self._actions else []
            for labels, count in sorted(self._actions.items()):
                keys = zip(("node", "class", "action", "result"), labels, strict=True)
                text_labels = ",".join(f"{key}={json.dumps(value)}" for key, value in keys)
                lines.append(f"gpuform_health_actions_total{{{text_labels}}} {count}")
            for name, value in sorted(self._gauges.items()):
                lines += [f"# TYPE gpuform_health_{name} gauge", f"gpuform_health_{name} {value:.15g}"]
        return "\n".join([*lines, ""])


def serve(address: tuple[str, int], metrics: Metrics, is_alive: Callable[[], bool]) -> ThreadingHTTPServer:
    """Serve ``/metrics`` and ``/healthz`` from a thread of its own; without a host on IPv4 and IPv6."""
    host = address[0].strip("[]")
    dual_stack = not host and socket.has_dualstack_ipv6()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, metrics.text())
            elif self.path == "/healthz":
                self._answer(200, "ok\n") if is_alive() else self._answer(503, "no recent round\n")
            else:
                self._answer(404, "use /metrics or /healthz\n")

        def _answer(self, code: int, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log no requests: stdout is the audit log."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if dual_stack or ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            if dual_stack:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

    server = Server((host, address[1]), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
