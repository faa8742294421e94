"""A real Prometheus on a port of its own, with the environment's rules, that scrapes made-up metrics."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from infra.plan.rules import groups
from tests.plan.dashboards.made_up import MadeUp
from tests.ports import free_port
from tests.waiting import until

Series = list[dict[str, Any]]
Ask = Callable[[str], Series]


@contextmanager
def running(binary: Path, folder: Path, metrics: MadeUp) -> Iterator[Ask]:
    """Yield a query function, after the rules have recorded what rates need: two scrapes."""
    with _serving(metrics) as source:
        address = f"127.0.0.1:{free_port()}"
        (folder / "rules.yml").write_text(yaml.safe_dump({"groups": _quick(metrics)}), encoding="utf-8")
        (folder / "prometheus.yml").write_text(yaml.safe_dump(_config(metrics, source)), encoding="utf-8")
        command = [
            str(binary),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield _asking(address, process, folder / "log")
        finally:
            process.terminate()
            process.wait(10)


def _quick(metrics: MadeUp) -> list[dict[str, Any]]:
    """The rules, evaluated every second, and alerts without ``for``."""
    return [
        {
            "name": group["name"],
            "rules": [{key: value for key, value in rule.items() if key != "for"} for rule in group["rules"]],
        }
        for group in groups(metrics.env)
    ]


def _config(metrics: MadeUp, source: str) -> dict[str, Any]:
    def job(name: str, path: str, **of: str) -> dict[str, Any]:
        target = {"targets": [source], "labels": of}
        return {"job_name": name, "honor_labels": True, "metrics_path": path, "static_configs": [target]}

    exporters = [
        {**job(f"of-{node}", f"/dcgm/{node}", job="nvidia-dcgm-exporter", node=node)}
        for node in metrics.exporters
    ]
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [*exporters, job("state", "/state")],
    }


def _asking(address: str, process: subprocess.Popen[bytes], log: Path) -> Ask:
    def ask(expr: str) -> Series:
        data = urllib.parse.urlencode({"query": expr}).encode()
        with urllib.request.urlopen(f"http://{address}/api/v1/query", data, timeout=10) as answer:
            result: Series = json.load(answer)["data"]["result"]
        return result

    def recorded() -> Series:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        return ask("count_over_time(gpuform:gpu:energy_joules_total[1m]) > 2")

    until(recorded, seconds=60, what=lambda: log.read_text(encoding="utf-8"))
    return ask


@contextmanager
def _serving(metrics: MadeUp) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, *node = self.path.split("/")
            text = metrics.state() if kind == "state" else metrics.exporter(node[0])
            self.send_response(200 if text else 503)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
