"""Answers the scrapes of the nodes' exporters in Prometheus' format 0.0.4, as dcgm-exporter writes it.

All nodes share one port, so a stopped exporter cannot refuse the connection: it answers 503. A node's values
are computed only when it is scraped. (prometheus_client would append ``_total`` to the names of counters.)
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from lab.simulator import counters, driver, faults
from lab.simulator.dcgm.rows import WINDOW_MS, NodeWatch, Row, rows
from lab.simulator.store import Store
from lab.simulator.world import World

log = logging.getLogger("simulator")
Scrape = Callable[[str], tuple[int, str]]
SAMPLE = 30.0
"""Seconds between two samples of the exporter's fields (``DCGM_EXPORTER_INTERVAL``)."""
_FLOATS = ("DCGM_FI_PROF_", "DCGM_FI_DEV_POWER_USAGE")
_CLOCKS = {faults.THERMAL: ("hw_slowdown", "hw_thermal"), faults.POWER: ("hw_slowdown", "hw_power_brake")}
_WATCHES = ["PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"]
_INCIDENTS = {
    faults.ECC: ("MEM", 20, "DCGM_FR_VOLATILE_DBE_DETECTED"),
    faults.ROW_REMAP: ("MEM", 20, "DCGM_FR_ROW_REMAP_FAILURE"),
    faults.NVLINK: ("NVLINK", 10, "DCGM_FR_NVLINK_ERROR_THRESHOLD"),
    faults.THERMAL: ("THERMAL", 10, "DCGM_FR_CLOCK_THROTTLE_THERMAL"),
    faults.POWER: ("POWER", 10, "DCGM_FR_CLOCK_THROTTLE_POWER"),
    faults.GPU_LOST: ("ALL", 20, "DCGM_FR_FALLEN_OFF_BUS"),
}
"""DCGM's health watch, its result (10 warns, 20 fails) and its error, by kind of fault."""


class Exporters:
    """The exporters of all nodes; their state is a few hundred bytes per GPU."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        """``clock`` returns seconds since 1970."""
        self._store, self._clock = store, clock
        self._watched: dict[str, NodeWatch] = {}

    def scrape(self, name: str) -> tuple[int, str]:
        """HTTP status and text of one node's exporter."""
        node, moment = self._store.nodes.get(name), self._clock()
        if node is None:
            self._watched.pop(name, None)
            return 404, f"there is no node {name}\n"
        pods = list(self._store.on_node.get(name, {}).values())
        world = World(node, self._store.cluster, pods, claims=self._store.claimed.claims_on(name))
        if name not in self._watched and len(self._watched) > len(self._store.nodes):
            self._watched = {n: watch for n, watch in self._watched.items() if n in self._store.nodes}
        watch, pod = self._watched.setdefault(name, NodeWatch()), world.running(counters.OPERAND)
        why, wanted = "no dcgm-exporter runs on this node", None
        try:
            wanted = counters.requested_counters(pod, self._store.config_maps) if pod else None
        except counters.CountersError as error:
            why = str(error)
        if pod is None or wanted is None or faults.has_fault(node, faults.EXPORTER_DOWN):
            watch.stopped = moment
            return 503, f"{name}: {why}\n"
        watch.begin(world, pod, moment)
        return 200, _render(world, wanted, list(rows(world, watch, moment)), moment)


def _render(world: World, fields: Sequence[counters.Counter], rows: Sequence[Row], moment: float) -> str:
    """The whole answer; a counter without a value in any row is left out.

    Of the csv's ``label`` fields, those that NVML alone knows are left out rather than made up.
    """
    label_values = {"DCGM_FI_DEV_BRAND": "Nvidia", "DCGM_FI_DRIVER_VERSION": driver.version(world) or ""}
    requested = {counter.name for counter in fields if counter.kind == "label"}
    labels = {name: text for name, text in label_values.items() if name in requested and text}
    label_texts = [_render_labels(row.labels | labels | row.pod) for row in rows]
    lines: list[str] = []
    for counter in fields:
        samples = [] if counter.kind == "label" else list(_samples(counter.name, rows, label_texts, moment))
        if samples:
            lines += [
                f"# HELP {counter.name} {counter.text}",
                f"# TYPE {counter.name} {counter.kind}",
                *samples,
            ]
    return "\n".join([*lines, ""]) if lines else ""


def _samples(name: str, rows: Sequence[Row], label_texts: Sequence[str], moment: float) -> Iterator[str]:
    decimals = name.startswith(_FLOATS) and not name.endswith("_BYTES")
    for row, head in zip(rows, label_texts, strict=True):
        if name in counters.EXPORTER:
            for extra, count in _computed_counts(name, row, moment):
                yield f"{name}{{{head},{_render_labels(dict(sorted(extra.items())))}}} {count}"
        elif name == counters.XID:
            yield f'{name}{{{head},err_code="{row.xid}",err_msg="{faults.xid_name(row.xid)}"}} {row.xid}'
        elif (number := row.values.get(name)) is not None:
            yield f"{name}{{{head}}} {number:.6f}" if decimals else f"{name}{{{head}}} {int(number)}"


def _computed_counts(name: str, row: Row, moment: float) -> Iterator[tuple[dict[str, str], int]]:
    window = {"window_size_in_ms": str(WINDOW_MS)}
    if name in (counters.XID_COUNT, counters.CLOCK_EVENTS):
        label = "xid" if name == counters.XID_COUNT else "clock_event"
        counts = row.xids if name == counters.XID_COUNT else dict(_clock_events(row, moment))
        for key, count in sorted(counts.items()):
            yield {**window, label: str(key)}, count
        if not counts:
            yield window, 0
    elif name == counters.HEALTH and not row.instance:
        incidents = {found[0]: found for kind, found in _INCIDENTS.items() if kind in row.faults_by_kind}
        for watch in _WATCHES:
            _, result, error = incidents.get(watch, (watch, 0, "DCGM_FR_OK"))
            yield {"health_watch": watch, "health_error_code": error}, result


def _clock_events(row: Row, moment: float) -> Iterator[tuple[str, int]]:
    """Number of the window's samples with a reduced clock, by the reasons that hold now."""
    most = round(WINDOW_MS / 1000 / SAMPLE)
    if row.idle:
        yield "gpu_idle", most
    for kind, events in _CLOCKS.items():
        if fault := row.faults_by_kind.get(kind):
            samples = math.ceil((moment - fault.since) / SAMPLE)
            yield from ((event, min(most, max(1, samples))) for event in events)


def _render_labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Server(ThreadingHTTPServer):
    """Serves scrapes on loopback, one at a time: ``/nodes/NODE/metrics`` and ``/healthz``.

    Raises OSError if the port is taken.
    """

    request_queue_size = 128

    def __init__(self, scrape: Scrape, port: int) -> None:
        """Port 0 is any free port."""
        super().__init__(("127.0.0.1", port), _Handler)
        self._scrape, self._lock = scrape, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text for a path."""
        if path == "/healthz":
            return 200, "ok\n"
        match path.split("/"):
            case ["", "nodes", name, "metrics"] if name:
                try:
                    with self._lock:
                        return self._scrape(unquote(name))
                except Exception:  # one broken node must not end the server
                    log.exception("%s: cannot be scraped", name)
                    return 500, f"{name}: see the simulator's log\n"
        return 404, "the paths are /nodes/NODE/metrics and /healthz\n"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = 30
    server: Server

    def do_GET(self) -> None:
        status, text = self.server.answer(self.path.partition("?")[0])
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"text/plain; {'version=0.0.4; ' * (status == 200)}charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""
