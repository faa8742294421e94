"""A control plane with nodes, a Prometheus with a test's answers, and the health loop as in its pod."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from infra.config import parse
from infra.incluster import model
from infra.model.base.namespaces import HEALTH
from infra.model.environment import Environment
from infra.plan import health, quotas
from tests.build.aws_environments import aws
from tests.conftest import Plane
from tests.incluster.live_clusters import LiveCluster, Manifest
from tests.ports import free_port
from tests.waiting import until

BURST, FIXED = "burst", "fixed"
PLAIN = aws({"name": BURST, "machine": "g4dn.xlarge"}, {"name": FIXED, "machine": "g4dn.xlarge", "nodes": 20})
TAINT = "gpuform.io/gpu-unhealthy"


def environment(**health: Any) -> Environment:
    """Two pools of one GPU per node, one of Karpenter's, and the handling of their faults."""
    return parse({**PLAIN.resolved(), "monitoring": {}, "health": health})


class FakePrometheus:
    """Answers Prometheus' query API with the test's faults and measured nodes."""

    def __init__(self) -> None:
        self.faults: list[dict[str, str]] = []
        self.measured: set[str] = set()
        self.invalid_answer = ""
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                measured = [{"node": name} for name in sorted(server.measured)]
                is_fault_query = parse_qs(urlsplit(self.path).query)["query"] == [model.SERIES]
                series = server.faults if is_fault_query else measured
                result = [{"metric": labels, "value": [time.time(), "1"]} for labels in series]
                answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
                body = (server.invalid_answer or json.dumps(answer)).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def add_faults(self, *nodes: str, kind: str = "replace", xid: str = "79") -> None:
        for name in nodes:
            labels = {"node": name, "gpu": "0", "UUID": f"GPU-{name}", "class": kind, "xid": xid}
            self.faults.append({"__name__": "gpuform:fault:active", "pool": FIXED, "reason": "xid", **labels})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class LoopProcess:
    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.process, self._log, self._port = process, log, port

    def lines(self) -> list[Manifest]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def actions(self) -> list[tuple[str, str, str]]:
        lines = [line for line in self.lines() if "node" in line]
        return [(line["action"], line["node"], line["result"]) for line in lines]

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as answer:
            rows = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#"]
        return {name: float(value) for name, value in rows}

    def wait_for_rounds(self, rounds: int = 2) -> None:
        for _ in range(rounds):
            before = self.metrics().get("gpuform_health_last_look_timestamp_seconds", 0)
            until(
                lambda: self.metrics().get("gpuform_health_last_look_timestamp_seconds", 0),
                lambda now, before=before: now > before,
            )


class HealthCluster(LiveCluster):
    options = ("--server-side", "--force-conflicts")

    def __init__(self, plane: Plane, folder: Path, prometheus: FakePrometheus) -> None:
        super().__init__(plane)
        self.prometheus, self._folder, self._number = prometheus, folder, 0

    def install(self, env: Environment) -> None:
        """All planned objects except the ServiceMonitor, since its kind is unknown here."""
        namespaces = [item for item in quotas.namespaces(env) if item["metadata"]["name"] == HEALTH]
        self.apply(*namespaces)
        self.apply(*(item for item in health.manifests(env) if item["kind"] != "ServiceMonitor"))

    def add_nodes(self, *names: str, pool: str = FIXED, gpus: str = "1") -> None:
        """Nodes that offer what their pool promises, and are measured."""
        nodes = []
        for name in names:
            labels = {"kubernetes.io/hostname": name, "gpuform.io/pool": pool}
            annotations = {"kwok.x-k8s.io/node": "fake"}
            if pool == BURST:
                labels["karpenter.sh/nodepool"] = pool
                annotations["gpuform.io/offers"] = json.dumps({"nvidia.com/gpu": 1})
            metadata = {"name": name, "labels": labels, "annotations": annotations}
            taints = [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
            spec: Manifest = {"taints": taints, "providerID": f"kwok://{name}"}
            nodes.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
        self.apply(*nodes)
        self.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *(f"node/{name}" for name in names))
        for name in names:
            self.set_offers(name, gpus)
        self.prometheus.measured |= set(names)

    def set_offers(self, name: str, gpus: str) -> None:
        amounts = {"nvidia.com/gpu": gpus}
        self._status(name, {"allocatable": amounts, "capacity": amounts})

    def set_boot_id(self, name: str, id: str) -> None:
        self._status(name, {"nodeInfo": {**self.node(name)["status"]["nodeInfo"], "bootID": id}})

    def _status(self, name: str, status: Manifest) -> None:
        patch = json.dumps({"status": status})
        self.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)

    def taints(self) -> dict[str, str]:
        nodes = json.loads(self.kubectl("get", "nodes", "-l", "gpuform.io/pool", "-o", "json"))["items"]
        return {
            node["metadata"]["name"]: taint["value"]
            for node in nodes
            for taint in node["spec"].get("taints", [])
            if taint["key"] == TAINT
        }

    def condition(self, name: str) -> Manifest:
        conditions = self.node(name)["status"]["conditions"]
        return next((item for item in conditions if item["type"] == "GpuUnhealthy"), {})

    def events(self, name: str, namespace: str = "default") -> list[tuple[str, str]]:
        return self.event_texts(name, HEALTH, namespace)

    def ticket(self, name: str) -> Manifest | None:
        options = ("-n", HEALTH, "--ignore-not-found", "-o", "json")
        output = self.kubectl("get", "configmap", f"gpu-ticket-{name}", *options)
        return json.loads(output) if output else None

    def reset(self) -> None:
        """Reset to the state before the first poll."""
        self.kubectl("delete", "nodes", "-l", "gpuform.io/pool", "--wait=true")
        self.kubectl("delete", "configmaps,deployments", "-n", HEALTH, "--all")
        self.kubectl("delete", "events", "-n", "default", "--all")
        self.kubectl("delete", "events", "-n", HEALTH, "--all")
        self.prometheus.faults, self.prometheus.invalid_answer = [], ""
        self.prometheus.measured.clear()

    @contextmanager
    def loop(self, interval: float = 0.3, **settings: Any) -> Iterator[LoopProcess]:
        """The program from the ConfigMap that the Deployment mounts, with a token of its account."""
        self._number += 1
        folder = self._folder / str(self._number)
        command, account = self._unpack(folder)
        config = yaml.safe_load(self.plane.kubeconfig.read_text())["clusters"][0]["cluster"]
        host, _, server_port = config["server"].removeprefix("https://").rpartition(":")
        (account / "ca.crt").write_bytes(base64.b64decode(config["certificate-authority-data"]))
        port = free_port()
        file = Path(command[-1])
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))
        command += ["--every", str(interval)]
        command += ["--account", str(account), "--listen", f"127.0.0.1:{port}"]
        command += ["--prometheus", self.prometheus.url]
        env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": server_port}
        log = folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env={**env, "PATH": os.environ["PATH"]}, stdout=out, stderr=out
            )
        try:
            loop = LoopProcess(process, log, port)
            until(lambda: process.poll() is not None or _is_serving(port), bool)
            assert process.poll() is None, log.read_text()
            yield loop
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            process.wait(timeout=10)

    def _unpack(self, folder: Path) -> tuple[list[str], Path]:
        spec = self.get("deployment", HEALTH, HEALTH)["spec"]["template"]["spec"]
        files = self.get("configmap", spec["volumes"][0]["configMap"]["name"], HEALTH)["data"]
        account = folder / "account"
        account.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(text)
        (account / "namespace").write_text(HEALTH)
        (account / "token").write_text(self.kubectl("create", "token", HEALTH, "-n", HEALTH))
        first, *arguments = spec["containers"][0]["command"]
        assert first == "python3"
        return [sys.executable, *(word.replace("/health/", f"{folder}/") for word in arguments)], account


def _is_serving(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
