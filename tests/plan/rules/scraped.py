"""A real Prometheus on loopback that scrapes a fleet and evaluates rules; also used by ``bench.metrics``."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.plan.rules.fleet import Exporters, Fleet, cluster_state
from tests.ports import free_port
from tests.waiting import until

INTERVAL_S = 15
"""Seconds between two scrapes, and between two rule evaluations: the stack's default."""


class Prometheus:
    def __init__(self, binary: Path, folder: Path, config: dict[str, Any]) -> None:
        folder.mkdir()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                str(binary),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

        def ready() -> str:
            assert self._process.poll() is None, (folder / "log").read_text()[-2000:]
            return self.get("/-/ready")

        until(ready, seconds=60, what=(folder / "log").read_text)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())

    def query(self, expression: str) -> list[dict[str, Any]]:
        answer = json.loads(self.get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
        return list(answer["data"]["result"])

    def rules(self) -> list[dict[str, Any]]:
        return list(json.loads(self.get("/api/v1/rules"))["data"]["groups"])

    def range(self, expression: str, seconds: float, step: float) -> None:
        now = time.time()
        asked = {"query": expression, "start": now - seconds, "end": now, "step": step}
        self.get(f"/api/v1/query_range?{urllib.parse.urlencode(asked)}")

    def own(self, *names: str) -> dict[str, float]:
        text = self.get("/metrics")
        found = {}
        for name in names:
            lines = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
            found[name] = sum(map(float, lines))
        return found

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:  # it writes its head block, which is not needed
            self._process.kill()
            self._process.wait()
        self._log.close()


def job(name: str, targets: Sequence[tuple[str, dict[str, str]]], address: str) -> dict[str, Any]:
    """A scrape job of paths on ``address``, each with the labels that the stack adds."""
    found = [
        {"targets": [address], "labels": {"__metrics_path__": f"/{path}", **labels}}
        for path, labels in targets
    ]
    return {"job_name": name, "honor_labels": True, "static_configs": found}


@contextmanager
def serving(page: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the address of a server of the pages by path, which answers 503 if there is none."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = page(self.path.removeprefix("/"))
            body = (text or "").encode()
            self.send_response(200 if text else 503)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def scraping(
    binary: Path, folder: Path, jobs: list[dict[str, Any]], rules: Iterable[Path], seconds: int
) -> Iterator[Prometheus]:
    config = {
        "global": {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"},
        "rule_files": [str(file) for file in rules],
        "scrape_configs": jobs,
    }
    prometheus = Prometheus(binary, folder, config)
    try:
        yield prometheus
    finally:
        prometheus.close()


@contextmanager
def running(
    binary: Path,
    folder: Path,
    fleet: Fleet,
    counters: Sequence[tuple[str, str]],
    rules: Iterable[Path],
    seconds: int = INTERVAL_S,
) -> Iterator[Prometheus]:
    with serving(Exporters(fleet, counters, cluster_state(fleet)).page) as address:
        nodes = [(node, {"node": node, "instance": f"{node}:9400"}) for node in fleet.names]
        jobs = [job("nvidia-dcgm-exporter", nodes, address)]
        jobs.append(job("kube-state-metrics", [("state", {})], address))
        with scraping(binary, folder, jobs, rules, seconds) as prometheus:
            yield prometheus
