"""An exporter on loopback: counts requests for pods that run no code, and for a gateway in front of them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Key = tuple[str, str]
"""Namespace and name."""
GATEWAY: Key = ("gpuform-rehearsal", "gateway")
"""The Service that stands for ingresses and gateways."""


@dataclass(frozen=True)
class Series:
    """A counter; ``by_pods``: each ready pod of the workload reports its part; without one, nothing does."""

    name: str
    labels: Mapping[str, str]
    by_pods: bool

    def line(self, count: float, at: float) -> str:
        """In Prometheus's text format, with the time of the count: a late scrape changes no rate."""
        labels = ",".join(f'{key}="{value}"' for key, value in self.labels.items())
        return f"{self.name}{{{labels}}} {count:.6f} {round(at * 1000)}\n"


@dataclass
class RequestCounters:
    """Counts ``qps`` requests per second for each workload; its ready pods answer equal parts.

    ``ready`` returns those pods, each with its workload.
    """

    series: Mapping[Key, Series]
    ready: Callable[[], Mapping[Key, Key]]
    clock: Callable[[], float] = time.time
    _qps: float = 0.0
    _counted_at: float = 0.0
    _counts: defaultdict[Key, float] = field(default_factory=lambda: defaultdict(float))
    """By pod, and by workload for the gateway."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def play(self, qps: float) -> None:
        with self._lock:
            self._count()
            self._qps = qps

    def answer(self, kind: str, key: Key) -> str | None:
        """The metrics of one of the ``pods`` or ``services``; None if nothing answers there."""
        with self._lock:
            ready = self._count()
            if kind == "services" and key == GATEWAY:
                workloads = (work for work, series in self.series.items() if not series.by_pods)
                return "".join(
                    {self.series[work].line(self._counts[work], self._counted_at) for work in workloads}
                )
            series = self.series.get(ready[key]) if kind == "pods" and key in ready else None
            return series.line(self._counts[key], self._counted_at) if series and series.by_pods else None

    def _count(self) -> Mapping[Key, Key]:
        ready, now = self.ready(), self.clock()
        new = self._qps * (now - self._counted_at)
        self._counted_at = now
        for work, series in self.series.items():
            takers = [pod for pod, owner in ready.items() if owner == work] if series.by_pods else [work]
            for taker in takers:
                self._counts[taker] += new / len(takers)
        return ready


@contextmanager
def serve(requests: RequestCounters) -> Iterator[int]:
    """Serve /pods/NAMESPACE/NAME and /services/NAMESPACE/NAME; yields the port."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, namespace, name = self.path.strip("/").split("/")
            metrics = requests.answer(kind, (namespace, name))
            self.send_response(503 if metrics is None else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write((metrics or "").encode())

        def log_message(self, *args: Any) -> None:
            """Nothing: Prometheus asks every few seconds."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
