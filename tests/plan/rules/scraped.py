"""A real Prometheus on loopback that scrapes a fleet and evaluates rules; also used by ``bench.metrics``."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
        said = json.loads(self.get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
        return list(said["data"]["result"])

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


def config(fleet: Fleet, port: int, rules: Iterable[Path], seconds: int) -> dict[str, Any]:
    """Each node's exporter as its own target, with the labels that the stack adds."""
    address = f"127.0.0.1:{port}"
    nodes = [
        {
            "targets": [address],
            "labels": {"__metrics_path__": f"/{node}", "node": node, "instance": f"{node}:9400"},
        }
        for node in fleet.names
    ]
    state = {"targets": [address], "labels": {"__metrics_path__": "/state"}}
    return {
        "global": {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"},
        "rule_files": [str(file) for file in rules],
        "scrape_configs": [
            {"job_name": "nvidia-dcgm-exporter", "honor_labels": True, "static_configs": nodes},
            {"job_name": "kube-state-metrics", "honor_labels": True, "static_configs": [state]},
        ],
    }


@contextmanager
def running(
    binary: Path,
    folder: Path,
    fleet: Fleet,
    counters: Sequence[tuple[str, str]],
    rules: Iterable[Path],
    seconds: int = INTERVAL_S,
) -> Iterator[Prometheus]:
    exporters = Exporters(fleet, counters, cluster_state(fleet))
    try:
        prometheus = Prometheus(binary, folder, config(fleet, exporters.port, rules, seconds))
        try:
            yield prometheus
        finally:
            prometheus.close()
    finally:
        exporters.close()
