"""A real Prometheus on loopback and a fleet of MIG GPUs that it scrapes; also for ``bench.metrics``."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import yaml

from infra.model.environment import Environment
from lab.simulator.dcgm import device
from lab.simulator.hardware import GPUS
from tests.build.environments import on
from tests.fakes import http_server
from tests.ports import free_port
from tests.waiting import until

INTERVAL_S = 15
"""Seconds between two scrapes, and between two rule evaluations: the stack's default."""
Sample = tuple[str, Mapping[str, str], float]


PROFILE, RESOURCE = "1g.10gb", "nvidia_com_mig_1g_10gb"
_A100 = GPUS["20b2"]  # SXM4, 80 GB
_MIB = 10240


@dataclass(frozen=True)
class Fleet:
    """``nodes`` nodes of ``gpus`` GPUs, each with ``slices`` MIG slices and one pod on each slice."""

    nodes: int
    gpus: int
    slices: int
    pool: str = "a100"

    @property
    def names(self) -> list[str]:
        return [f"{self.pool}-{number}" for number in range(self.nodes)]

    def pods(self, node: str) -> Iterator[tuple[str, str, int, int]]:
        number = int(node.rpartition("-")[2])
        for gpu in range(self.gpus):
            for part in range(self.slices):
                yield f"team-{(number + gpu) % 20}", f"work-{node}-{gpu}-{part}", gpu, part


def environment(fleet: Fleet) -> Environment:
    sharing = {"kind": "mig", "layout": "all-1g.10gb"}
    pool = {"name": fleet.pool, "machine": "p4de.24xlarge", "nodes": fleet.nodes, "sharing": sharing}
    return on("embedded", pool, name="fleet", gpu_operator={"mig_strategy": "mixed"}, monitoring={})


class Exporters:
    """Serves ``/<node>`` as that node's dcgm-exporter, with changing values, and ``/state``."""

    def __init__(self, fleet: Fleet, counters: Sequence[tuple[str, str]], state: str) -> None:
        """``counters`` are names and types; ``state`` is the constant scrape of kube-state-metrics."""
        self._random = random.Random(20261122)
        self._state = state
        self._began = time.monotonic()
        values = _values()
        known = [(name, kind) for name, kind in counters if kind != "label" and name in values]
        self._samples = {
            node: [
                (f"{name}{{{head}}} ", values[name], kind)
                for name, kind in known
                for head in _heads(fleet, node)
            ]
            for node in fleet.names
        }

    def page(self, path: str) -> str:
        """Text of one target: ratios vary, counters grow, error counters stay 0."""
        if path == "state":
            return self._state
        chance, seconds = self._random.random, time.monotonic() - self._began
        return "".join(
            f"{head}{value * (0.5 + chance()):.6f}\n"
            if kind == "gauge" and value
            else f"{head}{int(value * (1 + seconds))}\n"
            for head, value, kind in self._samples[path]
        )


def _values() -> dict[str, float]:
    """Every field with a value for a MIG instance, as the simulator models it, half busy."""
    state = device.State()
    for second in (0.0, 60.0):
        device.advance(state, _A100, 0.5, 0.0, {}, 1e9 + second)
    own = device.device_values(0.5, _MIB, _MIB // 2, instance=True)
    none = {
        "DCGM_FI_DEV_XID_ERRORS": 0.0,
        "DCGM_EXP_XID_ERRORS_COUNT": 0.0,
        "DCGM_EXP_CLOCK_EVENTS_COUNT": 0.0,
    }
    return device.gpu_values(state, _A100, 0.5, {}) | own | none


def _heads(fleet: Fleet, node: str) -> Iterator[str]:
    for namespace, pod, gpu, part in fleet.pods(node):
        yield (
            f'gpu="{gpu}",UUID="GPU-{node}-{gpu}",pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}",'
            f'modelName="NVIDIA A100-SXM4-80GB",Hostname="{node}",GPU_I_PROFILE="{PROFILE}",'
            f'GPU_I_ID="{part + 7}",DCGM_FI_DRIVER_VERSION="595.91.07",container="work",'
            f'namespace="{namespace}",pod="{pod}"'
        )


def exposition(samples: Iterable[Sample]) -> str:
    """Samples in the text format of a scrape."""

    def line(name: str, labels: Mapping[str, str], value: float) -> str:
        inner = ",".join(f'{key}="{text}"' for key, text in labels.items())
        return f"{name}{{{inner}}} {float(value)}\n"

    return "".join(line(*sample) for sample in samples)


def _state(fleet: Fleet) -> Iterator[Sample]:
    """Of kube-state-metrics for the nodes and pods: only what our rules read."""
    offers = (
        (RESOURCE, "integer", fleet.gpus * fleet.slices),
        ("cpu", "core", 96),
        ("memory", "byte", 1 << 40),
    )
    asks = ((RESOURCE, "integer", 1), ("cpu", "core", 1), ("memory", "byte", 8 << 30))
    for node in fleet.names:
        of = {"node": node}
        mig = {"label_nvidia_com_mig_config_state": "success"}
        yield "kube_node_info", of, 1
        yield "kube_node_labels", {**of, "label_gpuform_io_pool": fleet.pool, **mig}, 1
        yield "kube_node_status_condition", {**of, "condition": "Ready", "status": "true"}, 1
        yield "kube_node_spec_unschedulable", of, 0
        for word in ("allocatable", "capacity"):
            for resource, unit, count in offers:
                yield f"kube_node_status_{word}", {**of, "resource": resource, "unit": unit}, count
        for namespace, pod, _, _ in fleet.pods(node):
            who = {"namespace": namespace, "pod": pod, "uid": pod}
            yield "kube_pod_info", {**who, **of, "created_by_kind": "Job", "created_by_name": pod}, 1
            owner = {"owner_kind": "Job", "owner_name": pod, "owner_is_controller": "true"}
            yield "kube_pod_owner", {**who, **owner}, 1
            yield "kube_pod_container_status_restarts_total", {**who, "container": "work"}, 0
            for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
                yield "kube_pod_status_phase", {**who, "phase": phase}, phase == "Running"
            for word in ("requests", "limits"):
                for resource, unit, count in asks:
                    what = {"container": "work", **of, "resource": resource, "unit": unit}
                    yield f"kube_pod_container_resource_{word}", {**who, **what}, count


class Prometheus:
    def __init__(
        self, binary: Path, folder: Path, jobs: list[dict[str, Any]], rules: Iterable[Path], seconds: int
    ) -> None:
        folder.mkdir()
        config = {
            "global": {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"},
            "rule_files": [str(file) for file in rules],
            "scrape_configs": jobs,
        }
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

    with http_server.serving(Handler) as at:
        yield at


@contextmanager
def running(
    binary: Path,
    folder: Path,
    fleet: Fleet,
    counters: Sequence[tuple[str, str]],
    rules: Iterable[Path],
    seconds: int = INTERVAL_S,
) -> Iterator[Prometheus]:
    with serving(Exporters(fleet, counters, exposition(_state(fleet))).page) as address:
        nodes = [(node, {"node": node, "instance": f"{node}:9400"}) for node in fleet.names]
        jobs = [job("nvidia-dcgm-exporter", nodes, address)]
        jobs.append(job("kube-state-metrics", [("state", {})], address))
        with closing(Prometheus(binary, folder, jobs, rules, seconds)) as prometheus:
            yield prometheus
