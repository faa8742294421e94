"""The table of controllers, what differs outside a pod, the API server's way to them, and Kueue itself."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.plane.kwokctl import STAGES
from lab.sidecars.controllers.egress import Egress, socket_name
from lab.sidecars.controllers.release import START, Release
from lab.sidecars.controllers.rows import CONTROLLERS, ProgramContext
from lab.simulator import keys
from lab.toolchain.catalogue import CATALOGUE
from tests.fakes.http_server import serving
from tests.lab.sidecars.controllers.conftest import NAMESPACE, Queues, manager
from tests.waiting import until

unit = pytest.mark.unit
tools = pytest.mark.tools


@unit
def test_the_stages_hold_exactly_the_pods_of_the_controllers() -> None:
    stages = {item["metadata"]["name"]: item for item in yaml.safe_load_all(STAGES.read_text())}
    keyed = [item["key"] for item in stages["pod-ready"]["spec"]["selector"]["matchExpressions"]]
    (held,) = [result[1] for key in keyed if (result := re.search(r"(?s)IN\((.*?)\)", key))]
    assert sorted(json.loads(f"[{held}]")) == sorted(
        list(row.labels.values()) for row in CONTROLLERS.values()
    )
    second = {"control-plane", "app.kubernetes.io/component", "role"}
    names = {("app.kubernetes.io/name", name) for name in second}
    assert {tuple(row.labels) for row in CONTROLLERS.values()} == names
    assert any(keys.START == START and START in key for key in keyed)
    # The chart's hooks have the operator's labels, and no program that the keeper knows.
    assert any('select(.kind == "Job")' in key and held in key for key in keyed)


@unit
def test_a_program_has_its_containers_environment() -> None:
    """NVIDIA's operator reads its namespace, NFD its node, and both end without."""
    env = [
        {"name": "WATCH_NAMESPACE", "value": ""},
        {"name": "OPERATOR_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    template = {"spec": {"containers": [{"env": env}]}}
    pods = ({"spec": {}}, {"spec": {"nodeName": "cpu-1"}})
    release = Release("gpu-operator", template, {}, {}, pods, ())
    assert release.node == "cpu-1"
    given = {"WATCH_NAMESPACE": "", "OPERATOR_NAMESPACE": "gpu-operator", "NODE_NAME": "cpu-1"}
    assert release.variables(release.node) == given


@unit
@pytest.mark.parametrize("row", CONTROLLERS.values(), ids=CONTROLLERS)
def test_a_controllers_program_and_chart_are_of_one_module(row: Any) -> None:
    assert CATALOGUE[row.name].module.module_path == row.module


@unit
@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ({}, {8081, 8443, 9443, 8082}),
        ({"webhook": {"port": 1}, "metrics": {"bindAddress": ":2"}}, {8081, 2, 1, 8082}),
    ],
)
def test_kueues_ports_and_paths_are_its_own(given: dict[str, Any], ports: set[int]) -> None:
    config = {"integrations": {"frameworks": ["batch/job"]}, **given}
    requests: set[int] = set()

    def port(wanted: int) -> int:
        requests.add(wanted)
        return wanted + 10000

    CONTROLLERS["kueue"].adapt(config, ProgramContext("queues", "/r", port))
    assert requests == ports
    assert config["namespace"] == config["leaderElection"]["resourceNamespace"] == "queues"
    assert config["health"]["healthProbeBindAddress"] == "127.0.0.1:18081"
    assert config["webhook"]["host"] == "127.0.0.1"
    assert config["webhook"]["certDir"] == "/r/tmp/k8s-webhook-server/serving-certs"
    assert config["integrations"] == {"frameworks": ["batch/job"]}, "what the values say stays"


@unit
def test_services_of_the_pod_are_served_at_the_containers_ports() -> None:
    labels = {"app": "x"}
    container = {"ports": [{"name": "webhook", "containerPort": 9443}]}

    def service(address: str, selector: dict[str, str] | None, **port: Any) -> dict[str, Any]:
        return {"spec": {"clusterIP": address, "selector": selector, "ports": [port]}}

    services = (
        service("10.96.0.2", labels, port=443, targetPort=9443),
        service("10.96.0.3", labels, port=443, targetPort="webhook"),
        service("fd00::1", labels, port=8082),
        service("None", labels, port=1),
        service("10.96.0.4", {"app": "y"}, port=1),
        service("10.96.0.5", labels, port=8443, targetPort="https"),
    )
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    release = Release("n", template, {}, {}, (), services)
    result = {target: port for target, port in release.served() if port}
    assert result == {"10.96.0.2:443": 9443, "10.96.0.3:443": 9443, "[fd00::1]:8082": 8082}


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    with serving(_Answers) as at:
        yield int(at.rpartition(":")[2])


def ask(name: str, target: str) -> tuple[bytes, bytes]:
    """The proxy's answer to CONNECT, and the server's to GET through it."""
    with socket.socket(socket.AF_UNIX) as way:
        way.connect("\0" + name.removeprefix("@"))
        way.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = way.recv(100)
        if not head.startswith(b"HTTP/1.1 200"):
            return head, b""
        way.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        return head, b"".join(iter(lambda: way.recv(4096), b""))


@tools
def test_a_service_is_reached_only_while_it_has_a_ready_pod(server: int, tmp_path: Path) -> None:
    name = socket_name(tmp_path)
    egress = Egress(name)
    egress.start()
    assert ask(name, "10.96.0.9:443")[0].startswith(b"HTTP/1.1 503")
    egress.routes = {"10.96.0.9:443": server}
    head, body = ask(name, "10.96.0.9:443")
    assert head.startswith(b"HTTP/1.1 200")
    assert body.endswith(b"/readyz")
    # Nothing else is reached, neither here nor on the network.
    assert ask(name, f"127.0.0.1:{server}")[0].startswith(b"HTTP/1.1 503")
    with pytest.raises(OSError, match="in use"):
        Egress(name).start()


@tools
def test_controllers_ask_services_by_name_and_no_others(server: int, tmp_path: Path) -> None:
    """As Go's HTTP clients do with HTTP_PROXY."""
    proxy = Egress(socket_name(tmp_path)).start({"prometheus.monitoring:9090": server})

    def said(target: str) -> bytes:
        with socket.create_connection(("127.0.0.1", proxy)) as way:
            way.sendall(f"GET http://{target}/api?query=a HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            return b"".join(iter(lambda: way.recv(4096), b""))

    answer = said("prometheus.monitoring:9090")
    assert answer.startswith(b"HTTP/1.0 200")
    assert answer.endswith(b"/api?query=a")
    assert said("prometheus.other:9090").startswith(b"HTTP/1.1 503")


@pytest.mark.cluster
def test_a_job_within_quota_runs_and_one_beyond_it_waits_with_the_reason(queues: Queues) -> None:
    assert not manager(queues.cluster), "it runs only while its release exists"
    queues.install()
    (pod,) = queues.items("pods", NAMESPACE)
    assert pod["spec"]["nodeName"] == "cpu-0"
    # The release is ready: nothing may fail now, and nothing may slip through.
    queues.kueue("ResourceFlavor", "default", {})
    queues.queue("team", {"cpu": "4"})
    limits = {"name": "cpu", "nominalQuota": "-4"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [limits]}]}]
    with pytest.raises(AssertionError, match=r'admission webhook "vclusterqueue.kb.io" denied the request'):
        queues.kueue("ClusterQueue", "wrong", {"resourceGroups": groups})
    queues.job("fits", "team", {"cpu": "3"})
    queues.runs("fits", "team")
    queues.job("waits", "team", {"cpu": "3"})
    reason = "insufficient unused quota for cpu in flavor default"
    queues.waits("waits", "team", lambda message: reason in message)
    # Its aggregated API, as the chart installs it, says the place in the queue.
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/team/pendingworkloads"
    waiting = json.loads(queues.kubectl("get", "--raw", path))["items"]
    assert [item["positionInClusterQueue"] for item in waiting] == [0]
    # With the rights of its ServiceAccount, not of an administrator: nothing is missing in the chart's role.
    assert "forbidden" not in queues.log()
    before = queues.cluster.pids()
    queues.kubectl("delete", "jobs,localqueues", "--all", "-n", "team")
    queues.kubectl("delete", "clusterqueues,resourceflavors", "--all")
    queues.remove()
    until(lambda: not manager(queues.cluster), what="it runs on, but its release is removed")
    assert {**queues.cluster.pids(), "kueue": before["kueue"]} == before
    queues.kubectl("run", "free", "--image=none", "-n", "team")
