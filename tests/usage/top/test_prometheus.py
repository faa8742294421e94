"""The queries to a Prometheus, over real HTTP, on this machine and through an API server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.usage import prometheus
from gpuform.usage.prometheus import SERVICE, Alert, Direct, Prometheus, Proxied, Sample, Series, reach
from infra.config import parse
from infra.model.environment import Environment
from lab.plane.layout import Layout, Record, prometheus_port

pytestmark = pytest.mark.tools


@dataclass
class Served:
    """Answers every path with ``document`` and ``code`` after ``delay``, and records the requests."""

    document: Any = None
    code: int = 200
    delay: float = 0.0  # seconds
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def served() -> Iterator[Served]:
    state = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            state.asked.append((parts.path, parse_qs(parts.query)))
            text = state.document if isinstance(state.document, str) else json.dumps(state.document)
            if parts.path == "/version/":  # kr8s asks an API server for its version
                self._say(200, '{"gitVersion": "v1.34.4"}')
            else:
                time.sleep(state.delay)
                self._say(state.code, text)

        def _say(self, code: int, text: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def good(data: Any) -> dict[str, Any]:
    return {"status": "success", "data": data}


@pytest.fixture
def asks(served: Served) -> Iterator[Prometheus]:
    transport = Direct(served.url)
    yield Prometheus(transport, "start it")
    transport.close()


def test_a_query_gives_samples_and_leaves_out_what_is_no_number(served: Served, asks: Prometheus) -> None:
    values = [("a", "0.5"), ("b", "NaN"), ("c", "+Inf")]
    result = [{"metric": {"gpu": gpu}, "value": [1.0, value]} for gpu, value in values]
    served.document = good({"resultType": "vector", "result": result})
    assert asks.query('x{a="b"}') == [Sample({"gpu": "a"}, 0.5)]
    assert served.asked == [("/api/v1/query", {"query": ['x{a="b"}']})]


def test_a_range_gives_series(served: Served, asks: Prometheus) -> None:
    result = [{"metric": {}, "values": [[10, "1"], [20, "NaN"], [30, "2"]]}]
    served.document = good({"resultType": "matrix", "result": result})
    assert asks.query_range("x", 10, 30, 10) == [Series({}, ((10, 1), (30, 2)))]
    assert served.asked[0][1] == {"query": ["x"], "start": ["10.000"], "end": ["30.000"], "step": ["10"]}


def test_alerts_are_sorted(served: Served, asks: Prometheus) -> None:
    alerts = [
        {"labels": {"alertname": name}, "state": "firing", "annotations": {}, "activeAt": "2026"}
        for name in ("B", "A")
    ]
    served.document = good({"alerts": alerts})
    assert asks.alerts() == [Alert(name, "firing", {"alertname": name}, {}, "2026") for name in ("A", "B")]


@pytest.mark.parametrize(
    ("code", "document", "said"),
    [
        (
            400,
            {"status": "error", "errorType": "bad_data", "error": "parse error"},
            "Prometheus: refuses a query: parse error; check its rules and its log",
        ),
        (502, "<html>", "Prometheus: answers 502, but not in the format of Prometheus; start it"),
        (
            404,
            {"kind": "Status", "message": "services not found"},
            "answers 404: services not found; start it",
        ),
        (200, [], "answers 200: no readable message; start it"),
    ],
)
def test_a_bad_answer_is_a_failure(
    served: Served, asks: Prometheus, code: int, document: Any, said: str
) -> None:
    served.code, served.document = code, document
    with pytest.raises(Failure) as failed:
        asks.query("x")
    assert said in str(failed.value)


def test_nobody_there_is_a_failure_with_what_to_do(served: Served) -> None:
    transport = Direct("http://127.0.0.1:1")
    with pytest.raises(Failure, match=r"^Prometheus: does not answer .*; start it$"):
        Prometheus(transport, "start it").query("x")
    transport.close()


def test_elsewhere_it_is_reached_through_the_api_server(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig(served.url)))
    transport = Proxied(file, None)
    served.document = good({"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "2"]}]})
    try:
        for _ in range(2):
            assert Prometheus(transport, "").query("up") == [Sample({"a": "b"}, 2)]
        served.code, served.document = 503, {"kind": "Status", "message": "no endpoints available"}
        with pytest.raises(Failure, match="answers 503: no endpoints available; look"):
            Prometheus(transport, "look").query("up")
    finally:
        transport.close()
    assert served.asked[-1] == (f"{SERVICE}/api/v1/query", {"query": ["up"]})


def test_one_that_takes_too_long_behind_the_api_server_is_a_failure(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "TIMEOUT_S", 0.2)
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig(served.url)))
    transport, served.delay = Proxied(file, None), 0.5
    with pytest.raises(Failure, match=r"^Prometheus: does not answer .no answer within 0.2 s.; look at it$"):
        Prometheus(transport, "look at it").query("up")
    transport.close()


def kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


ENV = parse(
    {
        "name": "test",
        "cluster": {"kind": "embedded"},
        "pools": [{"name": "cpu", "machine": "m6i.xlarge", "nodes": 1}],
    }
)


def ask(env: Environment, paths: Paths) -> AbstractContextManager[Prometheus]:
    return reach(env, paths, paths.kubeconfig, None, prometheus_port)


def test_the_embedded_one_is_found_by_its_port(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ENV.model_copy(update={"monitoring": object()})
    paths = Paths(root=tmp_path, state=tmp_path, cache=tmp_path)
    served.document = good({"alerts": []})
    with (
        ask(env, paths) as found,
        pytest.raises(Failure, match="has no port"),
    ):
        found.alerts()
    layout = Layout(paths)
    layout.record.parent.mkdir(parents=True, exist_ok=True)
    Record(ports={"prometheus": served.port}).store(layout)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # is not used
    with ask(env, paths) as found:
        assert found.alerts() == []


def test_a_stack_without_monitoring_is_asked_nothing(tmp_path: Path) -> None:
    paths = Paths(root=tmp_path, state=tmp_path, cache=tmp_path)
    said = "monitoring: not declared; declare it in the stack file"
    with (
        ask(ENV, paths) as found,
        pytest.raises(Failure, match=said),
    ):
        found.query("up")
