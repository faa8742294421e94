"""Queries to Prometheus, and how to reach it.

On the embedded control plane it listens on this machine; anywhere else it is reached through the API server's
proxy to its Service, with the rights of the kubeconfig (``get`` on ``services/proxy``), so nothing has to be
exposed. One at an address outside may ask for credentials: those of a Secret, which is read with the same
rights, or the caller's own of AWS. Read-only. Values that are not finite (NaN, an infinity) are left out.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.kubernetes.client import open_session
from gpuform.kubernetes.cluster import Reader
from gpuform.kubernetes.credentials import bearer
from gpuform.kubernetes.kinds import SECRET
from gpuform.kubernetes.kubeconfig import load_access
from gpuform.kubernetes.kubeconfig_errors import Forbidden
from infra.model.environment import Environment
from infra.model.platform.existing_prometheus import ExistingPrometheus
from infra.plan import sharing

_PROXY = "/api/v1/namespaces/{}/services/http:{}:{}/proxy"
TIMEOUT_S = 10.0
SUBJECT = "Prometheus"

Params = Mapping[str, str]
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Sample:
    """The current value of one series."""

    labels: Labels
    value: float

    @property
    def name(self) -> str:
        """The metric's name; empty if the query computed a new series."""
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

    def get(self, path: str, /, *, params: Params) -> httpx.Response:
        """Send a GET request; raises what httpx raises, and Failure."""


class Prometheus:
    """Queries one Prometheus. Every method raises Failure if it does not answer or rejects the query."""

    def __init__(self, transport: Transport, remedy: str) -> None:
        """``remedy`` is what to do when it cannot be reached."""
        self._transport = transport
        self._remedy = remedy

    def query(self, expression: str) -> list[Sample]:
        """An instant vector."""
        data = self._get("/api/v1/query", {"query": expression})
        samples = ((series["metric"], float(series["value"][1])) for series in data["result"])
        return [Sample(labels, value) for labels, value in samples if math.isfinite(value)]

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """A range vector; ``start`` and ``end`` in Unix seconds, ``step`` in seconds."""
        params = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        data = self._get("/api/v1/query_range", params)
        return [Series(series["metric"], tuple(_parse_points(series["values"]))) for series in data["result"]]

    def alerts(self) -> list[Alert]:
        """Pending and firing alerts, sorted by name and labels."""
        found = [
            Alert(
                alert["labels"].get("alertname", ""),
                alert["state"],
                alert["labels"],
                alert.get("annotations") or {},
                alert.get("activeAt", ""),
            )
            for alert in self._get("/api/v1/alerts", {})["alerts"]
        ]
        return sorted(found, key=lambda alert: (alert.name, sorted(alert.labels.items())))

    def _get(self, path: str, params: Params) -> Any:
        try:
            response = self._transport.get(path, params=params)
            document = response.json()
        except httpx.HTTPError as error:
            raise self._failure(f"does not answer ({error or type(error).__name__})") from None
        except ValueError:
            code = response.status_code
            fact = "refuses the credentials" if code in (401, 403) else "but not in the format of Prometheus"
            raise self._failure(f"answers {code}, {fact}") from None
        if not isinstance(document, dict) or document.get("status") != "success":
            raise self._refused(response.status_code, document)
        return document["data"]

    def _refused(self, code: int, document: Any) -> Failure:
        """Prometheus' own errors have an ``errorType``; any other error comes from the proxy in between."""
        error = document if isinstance(document, dict) else {}
        if error.get("errorType"):
            return Failure(
                SUBJECT, f"refuses a query: {error.get('error', '')}", "check its rules and its log"
            )
        return self._failure(f"answers {code}: {error.get('message', 'no readable message')}")

    def _failure(self, fact: str) -> Failure:
        return Failure(SUBJECT, fact, self._remedy)


def _parse_points(values: list[Any]) -> Iterator[tuple[float, float]]:
    for at, text in values:
        if math.isfinite(value := float(text)):
            yield float(at), value


def local_client(url: str) -> httpx.Client:
    """Prometheus at an address on this machine, for which no proxy of the environment variables is used."""
    return httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)


class ApiServerProxy:
    """Prometheus behind the API server's proxy, with the identity of the kubeconfig."""

    def __init__(self, kubeconfig: Path, context: str | None, address: str) -> None:
        """``address``: of the Service, as ``http://NAME.NAMESPACE:PORT``."""
        self._kubeconfig, self._context = kubeconfig, context
        service, _, port = address.removeprefix("http://").rpartition(":")
        name, _, namespace = service.partition(".")
        self._path = _PROXY.format(namespace, name, port)
        self._runner = asyncio.Runner()
        self._session: httpx.AsyncClient | None = None

    def get(self, path: str, params: Params) -> httpx.Response:
        """Raises Failure if the kubeconfig has no usable credentials."""
        return self._runner.run(self._ask(path, params))

    async def _ask(self, path: str, params: Params) -> httpx.Response:
        try:
            if self._session is None:
                self._session = await open_session(load_access(self._kubeconfig, self._context))
            return await self._session.get(f"{self._path}{path}", params=dict(params), timeout=TIMEOUT_S)
        except httpx.TimeoutException:
            raise httpx.TimeoutException(f"no answer within {TIMEOUT_S:g} s") from None
        except OSError as error:
            fact = f"cannot be queried through the API server: {error}"
            raise Failure(SUBJECT, fact, f"check {self._kubeconfig}") from None

    def close(self) -> None:
        if self._session:
            self._runner.run(self._session.aclose())
        self._runner.close()


class Unavailable:
    """Stands in for a Prometheus that cannot exist: every query raises ``failure``."""

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def get(self, path: str, params: Params) -> httpx.Response:
        raise self._failure

    def close(self) -> None:
        """Nothing is open."""


FindPort = Callable[[Paths], int | None]
"""Finds the port of the embedded cluster's Prometheus."""
REMOTE_REMEDY = "check the pods in the namespace monitoring"
LOCAL_REMEDY = "see `gpuform local status`"
NOT_DECLARED = Failure("monitoring", "not declared", "declare it in the stack file")


@contextmanager
def connect(
    env: Environment, paths: Paths, kubeconfig: Path, context: str | None, port: FindPort
) -> Iterator[Prometheus]:
    """The Prometheus of a stack's cluster. Raises nothing: only a query shows whether it answers."""
    remedy = LOCAL_REMEDY if kubeconfig == paths.kubeconfig else REMOTE_REMEDY
    if env.monitoring and env.monitoring.prometheus:
        remedy = "check monitoring.prometheus in the stack file"
    transport = _transport(env, paths, kubeconfig, context, port)
    try:
        yield Prometheus(transport, remedy)
    finally:
        transport.close()


def _transport(
    env: Environment, paths: Paths, kubeconfig: Path, context: str | None, port: FindPort
) -> httpx.Client | ApiServerProxy | Unavailable:
    if env.monitoring is None:
        return Unavailable(NOT_DECLARED)
    theirs = env.monitoring.prometheus
    if theirs and theirs.url:
        try:
            auth, headers = _credentials(theirs, sharing.namespace(env), kubeconfig, context)
        except InputError as error:
            return Unavailable(Failure(error.path, error.fact, error.remedy))
        except Failure as failure:
            return Unavailable(failure)
        return httpx.Client(base_url=theirs.url, timeout=TIMEOUT_S, auth=auth, headers=headers)
    if kubeconfig != paths.kubeconfig or theirs:
        return ApiServerProxy(kubeconfig, context, env.monitoring.address)
    number = port(paths)
    if number is None:
        fact = "has no port on the embedded control plane"
        return Unavailable(Failure(SUBJECT, fact, "run `gpuform local start`"))
    return local_client(f"http://127.0.0.1:{number}")


def _credentials(
    theirs: ExistingPrometheus, namespace: str, kubeconfig: Path, context: str | None
) -> tuple[httpx.Auth | None, Mapping[str, str]]:
    """What a request shows, or headers of its own. Raises InputError without botocore, else Failure."""
    if theirs.sigv4:
        from gpuform.clients.aws.signing import SigV4

        return SigV4("aps", theirs.sigv4.region), {}
    if theirs.credentials is None:
        return None, {}
    name, keys = theirs.credentials
    subject = f"Secret {namespace}/{name} of Prometheus"
    try:
        with Reader(kubeconfig, context) as cluster:
            secret = cluster.find(SECRET, namespace, name)
        data = (secret or {}).get("data") or {}
        values = [base64.b64decode(data[key]).decode().rstrip("\r\n") for key in keys]
        return (None, bearer(*values)) if keys == ("token",) else (httpx.BasicAuth(*values), {})
    except KeyError as error:
        fact = f"has no key {error}" if secret else "is not there"
        raise Failure(subject, fact, f"create it with {' and '.join(keys)}") from None
    except Forbidden as error:
        raise Failure(subject, f"may not be read ({error})", "grant `get` on that secret") from None
    except (OSError, ValueError) as error:
        raise Failure(subject, f"cannot be read: {error}", f"check {kubeconfig}") from None
