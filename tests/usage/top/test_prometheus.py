"""The queries to a Prometheus, on this machine and through an API server, and those of the last hour."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import httpx
import pytest
import yaml

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.usage import prometheus
from gpuform.usage.prometheus import Alert, ApiServerProxy, Prometheus, Sample, Series, Unavailable
from gpuform.usage.top.measured import History, last_hour
from gpuform.usage.top.view import Gpu, Node, Slice, Use, View
from infra.model.environment import Environment
from infra.model.platform.monitoring import Monitoring
from infra.plan.rules.promql import POOL_REQUESTED, POOL_USED
from lab.plane.layout import Layout, Record, prometheus_port
from tests.build.environments import on
from tests.fakes.client import kubeconfig
from tests.usage.top.played import Played, gpu_series, response, series

pytestmark = pytest.mark.unit


@dataclass
class Served:
    """Answers every path with ``document`` and ``code``, or with an error, and records the requests."""

    document: Any = None
    code: int = 200
    error: type[httpx.TransportError] | None = None
    secret: Any = None
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    shown: list[httpx.Headers] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    proxies: list[Any] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if "/secrets/" in request.url.path:
            assert request.url.path == "/api/v1/namespaces/gpu-operator/secrets/metrics"
            code, document = self.secret
            return httpx.Response(code, json=document, request=request)
        self.shown.append(request.headers)
        self.queries.append(request.url.query.decode())
        self.asked.append((request.url.path, parse_qs(request.url.query.decode())))
        assert request.extensions["timeout"]["read"] == prometheus.TIMEOUT_S
        if self.error:
            raise self.error("")
        text = self.document if isinstance(self.document, str) else json.dumps(self.document)
        return httpx.Response(self.code, text=text, request=request)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    state, usual = Served(), httpx.HTTPTransport.__init__

    async def answer(_: Any, request: httpx.Request) -> httpx.Response:
        return state.answer(request)

    def made(self: Any, *args: Any, **given: Any) -> None:
        state.proxies.append(given.get("proxy"))
        usual(self, *args, **given)

    monkeypatch.setattr(httpx.HTTPTransport, "__init__", made)
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lambda _, request: state.answer(request))
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", answer)
    return state


def good(data: Any) -> dict[str, Any]:
    return {"status": "success", "data": data}


@pytest.fixture
def asks(served: Served) -> Iterator[Prometheus]:
    with prometheus.local_client("http://127.0.0.1:9090") as transport:
        yield Prometheus(transport, "start it")


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
    firing = {"state": "firing", "annotations": {}, "activeAt": "2026"}
    served.document = good({"alerts": [{"labels": {"alertname": name}, **firing} for name in ("B", "A")]})
    assert asks.alerts() == [Alert(name, "firing", {"alertname": name}, {}, "2026") for name in ("A", "B")]


@pytest.mark.parametrize(
    ("code", "document", "message"),
    [
        (400, {"status": "error", "errorType": "bad_data", "error": "parse error"},
         "Prometheus: refuses a query: parse error; check its rules and its log"),
        (502, "<html>", "Prometheus: answers 502, but not in the format of Prometheus; start it"),
        (404, {"kind": "Status", "message": "not found"}, "answers 404: not found; start it"),
        (200, [], "answers 200: no readable message; start it"),
    ],
)  # fmt: skip
def test_a_bad_answer_is_a_failure(
    served: Served, asks: Prometheus, code: int, document: Any, message: str
) -> None:
    served.code, served.document = code, document
    with pytest.raises(Failure) as failed:
        asks.query("x")
    assert message in str(failed.value)


def test_unreachable_prometheus_is_a_failure_with_its_remedy(served: Served, asks: Prometheus) -> None:
    served.error = httpx.ConnectError
    with pytest.raises(Failure, match=r"^Prometheus: does not answer .*; start it$"):
        asks.query("x")


def test_prometheus_of_another_cluster_is_reached_through_the_api_server(
    served: Served, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig({"server": "http://cluster.example"}, {"token": "t"})))
    transport = ApiServerProxy(file, None, "http://theirs.metrics:9090")
    served.document = good({"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "2"]}]})
    try:
        for _ in range(2):
            assert Prometheus(transport, "").query("up") == [Sample({"a": "b"}, 2)]
        served.code, served.document = 503, {"kind": "Status", "message": "no endpoints available"}
        with pytest.raises(Failure, match="answers 503: no endpoints available; look"):
            Prometheus(transport, "look").query("up")
        served.error = httpx.ReadTimeout
        with pytest.raises(Failure, match=r"^Prometheus: does not answer .no answer within 10 s.; look"):
            Prometheus(transport, "look").query("up")
    finally:
        transport.close()
    assert served.asked[-1] == (
        "/api/v1/namespaces/metrics/services/http:theirs:9090/proxy/api/v1/query",
        {"query": ["up"]},
    )


ENV = on("embedded", {"machine": "m6i.xlarge"})


def ask(env: Environment, paths: Paths) -> AbstractContextManager[Prometheus]:
    return prometheus.connect(env, paths, paths.kubeconfig, None, prometheus_port)


def test_prometheus_of_the_embedded_cluster_is_found_by_its_port(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ENV.model_copy(update={"monitoring": Monitoring()})
    paths = Paths(root=tmp_path, state=tmp_path, cache=tmp_path)
    served.document = good({"alerts": []})
    with ask(env, paths) as found, pytest.raises(Failure, match="has no port"):
        found.alerts()
    layout = Layout(paths)
    layout.record.parent.mkdir(parents=True, exist_ok=True)
    Record(ports={"prometheus": 9090}).store(layout)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with ask(env, paths) as found:
        assert found.alerts() == []
    assert served.proxies == [None]


MIMIR = "https://mimir.example/prometheus"


@pytest.fixture
def behind(tmp_path: Path) -> Callable[..., AbstractContextManager[Prometheus]]:
    """The Prometheus at an address that asks for credentials, and a cluster with its Secret."""
    file, paths = tmp_path / "kubeconfig", Paths(root=tmp_path, state=tmp_path, cache=tmp_path)
    file.write_text(yaml.safe_dump(kubeconfig({"server": "http://cluster.example"}, {"token": "t"})))

    def connected(**shown: Any) -> AbstractContextManager[Prometheus]:
        theirs = {"prometheus": {"url": MIMIR, **shown}}
        env = on("existing", {"machine": "g2.5xlarge"}, monitoring=theirs)
        return prometheus.connect(env, paths, file, None, prometheus_port)

    return connected


def secret(**keys: str) -> tuple[int, Any]:
    return 200, {"data": {key: base64.b64encode(text.encode()).decode() for key, text in keys.items()}}


BASIC, BEARER = {"secret": "metrics"}, {"token_secret": "metrics"}


@pytest.mark.parametrize(
    ("declared", "found", "header"),
    [
        ({}, None, None),
        (BASIC, secret(username="me", password="hidden\n"), "Basic bWU6aGlkZGVu"),
        (BEARER, secret(token="hidden\n"), "Bearer hidden"),
    ],
)  # fmt: skip
def test_prometheus_at_an_address_is_shown_the_credentials_of_the_secret(
    served: Served,
    behind: Callable[..., AbstractContextManager[Prometheus]],
    declared: dict[str, str],
    found: tuple[int, Any],
    header: str | None,
) -> None:
    served.secret, served.document = found, good({"alerts": []})
    with behind(**declared) as asks:
        assert asks.alerts() == []
        served.code, served.document = 401, "no"
        with pytest.raises(
            Failure, match=r"^Prometheus: answers 401, refuses the credentials; check monitor"
        ):
            asks.alerts()
    assert [headers.get("Authorization") for headers in served.shown] == [header, header]
    assert {path for path, _ in served.asked} == {"/prometheus/api/v1/alerts"}


@pytest.mark.parametrize(
    ("declared", "found", "message"),
    [
        (BASIC, (404, {"message": "not found"}), "is not there; create it with username and password"),
        (BASIC, secret(username="hidden"), "has no key 'password'; create it with username and password"),
        (BASIC, (403, {"message": 'secrets "metrics" is forbidden'}),
         "may not be read (HTTP 403: secrets \"metrics\" is forbidden); grant `get` on that secret"),
        (BASIC, (500, {"message": "etcd"}), "cannot be read: HTTP 500: etcd; check "),
        (BEARER, secret(token="hidden\nword"), "cannot be read: the token is not one word of ASCII; check"),
    ],
)  # fmt: skip
def test_a_secret_that_cannot_be_used_is_the_failure_of_each_query(
    served: Served,
    behind: Callable[..., AbstractContextManager[Prometheus]],
    declared: dict[str, str],
    found: tuple[int, Any],
    message: str,
) -> None:
    served.secret = found
    with behind(**declared) as asks, pytest.raises(Failure) as failed:
        asks.query("up")
    assert str(failed.value).startswith(f"Secret gpu-operator/metrics of Prometheus: {message}")
    assert "hidden" not in str(failed.value)
    assert served.asked == []


AMP = {"sigv4": {"region": "eu-central-1"}}


def test_a_workspace_of_aws_gets_requests_signed_by_the_caller(
    served: Served, behind: Callable[..., AbstractContextManager[Prometheus]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature as AWS computes it [IAM user guide, "Create a signed AWS API request"]."""
    names = {"ACCESS_KEY_ID": "AKIDEXAMPLE", "SECRET_ACCESS_KEY": "hidden", "SESSION_TOKEN": "session"}
    for name, value in names.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    expression = 'sum by (pool) (x{a="b+c"})'
    served.document = good({"resultType": "vector", "result": []})
    with behind(**AMP) as asks:
        asks.query(expression)
    (headers,) = served.shown
    at = headers["X-Amz-Date"]
    signed = {"host": "mimir.example", "x-amz-date": at, "x-amz-security-token": "session"}
    canonical = "\n".join((
        "GET", "/prometheus/api/v1/query", f"query={quote(expression, safe='')}",
        *(f"{key}:{value}" for key, value in signed.items()), "", ";".join(signed),
        hashlib.sha256(b"").hexdigest(),
    ))  # fmt: skip
    scope = (at[:8], "eu-central-1", "aps", "aws4_request")
    text = "\n".join(
        ("AWS4-HMAC-SHA256", at, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest())
    )
    key = b"AWS4hidden"
    for part in (*scope, text):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{'/'.join(scope)}"
    expected = f"{credential}, SignedHeaders={';'.join(signed)}, Signature={key.hex()}"
    assert headers["Authorization"] == expected
    assert served.queries == [canonical.splitlines()[2]], "which AWS reads as it was signed"


def test_without_an_identity_of_aws_nothing_is_sent(
    served: Served, behind: Callable[..., AbstractContextManager[Prometheus]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.session.Session.get_credentials", lambda _: None)
    with (
        behind(**AMP) as asks,
        pytest.raises(Failure, match=r"^AWS credentials: Unable to locate credentials"),
    ):
        asks.query("up")
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    message = r"^botocore: is not installed; pip install 'gpuform\[aws\]'$"
    with behind(**AMP) as asks, pytest.raises(Failure, match=message):
        asks.query("up")
    assert served.asked == []


def test_a_stack_without_monitoring_is_asked_nothing(tmp_path: Path) -> None:
    paths = Paths(root=tmp_path, state=tmp_path, cache=tmp_path)
    message = "monitoring: not declared; declare it in the stack file"
    with ask(ENV, paths) as found, pytest.raises(Failure, match=message):
        found.query("up")


SLICES = (Slice("3g.20gb", "2", 0, 3, 4, 3 / 7, 1, Use()), Slice("2g.10gb", "5", 4, 2, 2, 2 / 7, 1, Use()))
VIEW = View((Node("a.b", "p", "m", True, (Gpu(0, "u", "A100", 1, 7, 8, Use(), SLICES),)),))


class Young(Played):
    since = 3300.0

    def get(self, path: str, params: Mapping[str, str]) -> httpx.Response:
        data = super().get(path, params).json()["data"]
        for one in data["result"]:
            one["values"] = [value for value in one["values"] if value[0] >= self.since]
        return response(data)


def played(kind: type[Played]) -> Played:
    found = kind()
    for instance, util in (("2", 1.0), ("5", 0.5)):
        found.series += gpu_series("a.b", 0, util, 1, 2, GPU_I_ID=instance)
    found.series += [series(POOL_USED, 0.4, pool="p"), series(POOL_REQUESTED, 0.7, pool="p")]
    return found


def test_history_is_an_hour_in_sixty_steps() -> None:
    prometheus = played(Played)
    found = last_hour(Prometheus(prometheus, ""), VIEW, 3600.0)
    assert (found.since, found.until) == (0.0, 3600.0)
    assert [len(found.pools["p", name]) for name in (POOL_USED, POOL_REQUESTED)] == [61, 61]
    (points,) = found.gpus.values()
    assert {round(value, 6) for _, value in points} == {round(3 / 7 + 0.5 * 2 / 7, 6)}
    assert prometheus.asked == [
        "sum by (pool) (avg_over_time(gpuform:pool:gpus_used[60s]))",
        "sum by (pool) (avg_over_time(gpuform:pool:gpus_requested[60s]))",
        'avg_over_time(gpuform:device:util_ratio{node=~"a[.]b"}[60s])',
    ]


def test_a_young_prometheus_is_asked_again_finer() -> None:
    found = last_hour(Prometheus(played(Young), ""), VIEW, 3600.0)
    assert found.since == pytest.approx(3300, abs=6)
    assert len(found.pools["p", POOL_USED]) > 45


def test_history_is_empty_without_an_answer() -> None:
    assert last_hour(Prometheus(Unavailable(Failure("a", "b", "c")), ""), VIEW, 3600.0) == History()
