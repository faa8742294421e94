"""The few questions that are put to a Prometheus, and where it is.

On the embedded control plane it listens on this machine; anywhere else it is reached through the API server's
proxy to its Service, with the rights of the kubeconfig (``get`` on ``services/proxy``): nothing has to be
published for it. Only read: nothing here writes. A number that is none (NaN, an infinity) is left out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from gpuform.errors import Failure
from gpuform.paths import Paths
from infra.model.environment import Environment

PORT = "prometheus"
"""Its name among the embedded control plane's ports."""
SERVICE = "/api/v1/namespaces/monitoring/services/http:monitoring-kube-prometheus-prometheus:9090/proxy"
TIMEOUT_S = 10.0
SUBJECT = "Prometheus"

Params = Mapping[str, str]
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Sample:
    """One series' value now."""

    labels: Labels
    value: float

    @property
    def name(self) -> str:
        """The metric's name; empty where the query made a new one."""
        return self.labels.get("__name__", "")


@dataclass(frozen=True)
class Series:
    """One series over time: ``(Unix seconds, value)``, oldest first."""

    labels: Labels
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Alert:
    """An alert that is pending or firing; ``since`` as Prometheus writes it."""

    name: str
    state: str
    labels: Labels
    annotations: Labels = field(default_factory=dict)
    since: str = ""


class Transport(Protocol):
    """Gets a path of Prometheus' HTTP API."""

    def get(self, path: str, params: Params) -> httpx.Response:
        """Ask; raises what httpx raises, and Failure."""


class Prometheus:
    """Asks one Prometheus. Every method raises Failure where it does not answer, or refuses the query."""

    def __init__(self, transport: Transport, remedy: str) -> None:
        """``remedy`` is what to do when it cannot be reached."""
        self._transport = transport
        self._remedy = remedy

    def query(self, expression: str) -> list[Sample]:
        """An instant vector."""
        data = self._get("/api/v1/query", {"query": expression})
        found = ((one["metric"], float(one["value"][1])) for one in data["result"])
        return [Sample(labels, value) for labels, value in found if math.isfinite(value)]

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """A range vector; Unix seconds, and seconds between two points."""
        params = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        data = self._get("/api/v1/query_range", params)
        return [Series(one["metric"], tuple(_points(one["values"]))) for one in data["result"]]

    def alerts(self) -> list[Alert]:
        """Alerts that are pending or firing, sorted by their labels."""
        found = [
            Alert(
                one["labels"].get("alertname", ""),
                one["state"],
                one["labels"],
                one.get("annotations") or {},
                one.get("activeAt", ""),
            )
            for one in self._get("/api/v1/alerts", {})["alerts"]
        ]
        return sorted(found, key=lambda alert: (alert.name, sorted(alert.labels.items())))

    def _get(self, path: str, params: Params) -> Any:
        try:
            answer = self._transport.get(path, params)
            document = answer.json()
        except httpx.HTTPError as error:
            raise self._failure(f"does not answer ({error or type(error).__name__})") from None
        except ValueError:
            raise self._failure(f"answers {answer.status_code}, and not as Prometheus does") from None
        if not isinstance(document, dict) or document.get("status") != "success":
            raise self._refused(answer.status_code, document)
        return document["data"]

    def _refused(self, code: int, document: Any) -> Failure:
        """A refusal of its own has an ``errorType``; anything else came from the way to it."""
        said = document if isinstance(document, dict) else {}
        if said.get("errorType"):
            return Failure(
                SUBJECT, f"refuses a query: {said.get('error', '')}", "look at its rules and its log"
            )
        return self._failure(f"answers {code}: {said.get('message', 'nothing that could be read')}")

    def _failure(self, fact: str) -> Failure:
        return Failure(SUBJECT, fact, self._remedy)


def _points(values: list[Any]) -> Iterator[tuple[float, float]]:
    for at, text in values:
        if math.isfinite(value := float(text)):
            yield float(at), value


class Direct:
    """Prometheus at an address of its own."""

    def __init__(self, url: str) -> None:
        """``url`` without a path; a proxy of the environment is not asked for a loopback address."""
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)

    def get(self, path: str, params: Params) -> httpx.Response:
        """Ask."""
        return self._client.get(path, params=params)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class Proxied:
    """Prometheus behind the API server's proxy; kr8s knows how one logs in there, plugins included."""

    def __init__(self, kubeconfig: Path, context: str | None) -> None:
        """Nothing is asked yet."""
        self._kubeconfig, self._context = str(kubeconfig), context
        self._runner = asyncio.Runner()

    def get(self, path: str, params: Params) -> httpx.Response:
        """Ask; an error of the API server is raised as Failure, in its own words."""
        return self._runner.run(self._ask(path, params))

    async def _ask(self, path: str, params: Params) -> httpx.Response:
        import kr8s
        from kr8s import asyncio as kubernetes

        try:
            api = await kubernetes.api(kubeconfig=self._kubeconfig, context=self._context)
            call = api.call_api(
                version="",
                base=SERVICE,
                url=path.removeprefix("/"),  # kr8s puts one between
                params=dict(params),
                timeout=TIMEOUT_S,
                raise_for_status=False,
            )
            async with call as response:
                return response
        except kr8s.APITimeoutError:
            raise httpx.TimeoutException(f"nothing came within {TIMEOUT_S:g} s") from None
        except kr8s.ServerError as error:
            raise Failure(SUBJECT, f"cannot be asked through the API server: {error}", NOT_THERE) from None

    def close(self) -> None:
        """Close the loop that its connections live in."""
        self._runner.close()


class Nowhere:
    """Instead of a Prometheus that cannot be there: says why to whoever asks."""

    def __init__(self, why: Failure) -> None:
        """``why`` is raised by every question."""
        self._why = why

    def get(self, path: str, params: Params) -> httpx.Response:
        """Raise."""
        raise self._why

    def close(self) -> None:
        """Nothing is open."""


NOT_THERE = "look at the pods in the namespace monitoring"
NOT_STARTED = "see `gpuform local status`"
NOT_DECLARED = Failure("monitoring", "not declared", "declare it in the stack file")


@contextmanager
def reach(
    env: Environment, paths: Paths, kubeconfig: Path, context: str | None = None
) -> Iterator[Prometheus]:
    """The Prometheus of a stack's cluster. Raises nothing: whether it answers is known once it is asked."""
    remedy = NOT_STARTED if kubeconfig == paths.kubeconfig else NOT_THERE
    transport = _transport(env, paths, kubeconfig, context)
    try:
        yield Prometheus(transport, remedy)
    finally:
        transport.close()


def _transport(
    env: Environment, paths: Paths, kubeconfig: Path, context: str | None
) -> Direct | Proxied | Nowhere:
    if env.monitoring is None:
        return Nowhere(NOT_DECLARED)
    if kubeconfig != paths.kubeconfig:
        return Proxied(kubeconfig, context)
    port = _embedded_port(paths)
    if port is None:
        fact = "has no port on the embedded control plane"
        return Nowhere(Failure(SUBJECT, fact, "run `gpuform local start`"))
    return Direct(f"http://127.0.0.1:{port}")


def _embedded_port(paths: Paths) -> int | None:
    from gpuform.embedded.layout import Layout, Record

    return Record.load(Layout(paths)).ports.get(PORT)
