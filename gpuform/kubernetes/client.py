"""The Kubernetes API over one pooled HTTP client, errors as exceptions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.credentials import Tokens, create_ssl_context
from gpuform.kubernetes.kubeconfig import Access
from gpuform.kubernetes.kubeconfig_errors import error_text
from infra.model.base.hostnames import is_loopback

APPLY = "application/apply-patch+yaml"
_RETRIED = (429, 500, 502, 503, 504)
_ATTEMPTS = 4
_LONGEST_PAUSE_SECONDS = 10.0
_UNREACHABLE_SECONDS = 10  # no new attempt for this long after a cluster did not answer
UNREACHABLE = "configured Kubernetes cluster is unreachable: "


class Unreachable(OperationError):
    """No cluster is configured, or it does not answer."""


class ApiError(OperationError):
    """An error response; ``code`` is the HTTP status, the rest is from the server's Status object."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        self.code = code
        self.message = str(status.get("message") or f"HTTP status {code}")
        self.causes: list[Mapping[str, Any]] = (status.get("details") or {}).get("causes") or []
        super().__init__(self.message)


class Client:
    """Requests to one cluster over kept-alive connections, opened with the first request.

    Raises `Unreachable` if the server does not answer and `ApiError` for every error response. Requests that
    the server rejects as overloaded are retried after the seconds of its ``Retry-After``, at most 10 each, or
    with growing pauses, 5 s in all.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._http: httpx.AsyncClient | None = None
        self._unreachable_since: tuple[float, str] | None = None

    async def close(self) -> None:
        if self._http:
            await self._http.aclose()

    async def _client(self) -> httpx.AsyncClient:
        if self.access.problem:
            raise Unreachable(f"{UNREACHABLE}{self.access.problem}")
        if self._http is None:
            try:
                self._http = await open_session(self.access)
            except OSError as problem:
                raise _credentials_error(problem) from None
        return self._http

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        retry: bool = True,
    ) -> httpx.Response:
        """Send one request and return the successful response; ``retry``: if the server is overloaded."""
        if self._unreachable_since and time.monotonic() - self._unreachable_since[0] < _UNREACHABLE_SECONDS:
            raise Unreachable(self._unreachable_since[1])
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {} if body is None else {"Content-Type": content_type}
        for attempt in range(_ATTEMPTS):
            response = await self._send(method, path, params, content, headers)
            if response.is_success:
                return response
            if not retry or response.status_code not in _RETRIED or attempt == _ATTEMPTS - 1:
                break
            await asyncio.sleep(_pause_seconds(response, attempt))
        raise ApiError(response.status_code, _parse_status(response))

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: dict[str, str],
    ) -> httpx.Response:
        http = await self._client()
        try:
            return await http.request(method, path, params=params, content=content, headers=headers)
        except httpx.TransportError as problem:
            text = f"{self.access.server}: {error_text(problem)}"
            message = f"{UNREACHABLE}{text}"
            if isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout):
                self._unreachable_since = (time.monotonic(), message)
            raise Unreachable(message) from None
        except OSError as problem:
            raise _credentials_error(problem) from None

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = (await self.request("GET", path, params=params)).json()
        return result

    async def find(self, path: str) -> dict[str, Any] | None:
        try:
            return await self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def delete(self, path: str, params: Mapping[str, str] | None = None) -> None:
        """Delete the object, if it exists."""
        try:
            await self.request("DELETE", path, params=params)
        except ApiError as error:
            if error.code != 404:
                raise

    async def apply(
        self, path: str, body: Mapping[str, Any], *, manager: str, force: bool = False
    ) -> httpx.Response:
        """Server-side apply; status 201 says that the object was new."""
        params = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        return await self.request("PATCH", path, params=params, body=body, content_type=APPLY)


def _credentials_error(problem: Exception) -> Unreachable:
    return Unreachable(f"{UNREACHABLE}no usable credentials: {problem}")


def _pause_seconds(response: httpx.Response, attempt: int) -> float:
    """Seconds until the next attempt; as in client-go (rest/with_retry.go), a date is ignored."""
    retry_after = response.headers.get("Retry-After", "")
    if retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after), _LONGEST_PAUSE_SECONDS)
    return float(0.2 * 4**attempt)


def _parse_status(response: httpx.Response) -> Mapping[str, Any]:
    try:
        status = response.json()
    except ValueError:
        return {"message": response.text.strip()[:500] or f"HTTP status {response.status_code}"}
    return status if isinstance(status, dict) else {}


_HEADER_NAME = "!#$&'*+^`|"
"""Characters of a header's name beside letters, digits and ``_.-~`` (RFC 9110); all others are escaped."""


class _Identity(httpx.Auth):
    """Authorization for each request, renewed once after a 401, and the name to check in the certificate."""

    def __init__(self, access: Access, tokens: Tokens) -> None:
        self._tokens = tokens
        name = access.cluster.get("tls-server-name")
        self._extensions = {"sni_hostname": name} if name else {}

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        request.extensions = {**request.extensions, **self._extensions}
        request.headers.update(await self._tokens.header())
        response = yield request
        if response.status_code == 401 and self._tokens.renewable:
            request.headers.update(await self._tokens.header(renew=True))
            yield request


async def open_session(access: Access) -> httpx.AsyncClient:
    """A session with the API server. It and its requests raise OSError if the credentials are unusable."""
    tokens = Tokens(access)
    try:
        verify = create_ssl_context(access, await tokens.certified_user())
    except ValueError as problem:
        raise OSError(f"unusable certificates: {problem}") from None
    headers = [(b"User-Agent", b"gpuform-kubernetes"), (b"Accept", b"application/json")]
    if access.cluster.get("disable-compression"):
        headers.append((b"Accept-Encoding", b"identity"))
    return httpx.AsyncClient(
        base_url=access.server,
        verify=verify,
        auth=_Identity(access, tokens),
        proxy=access.cluster.get("proxy-url") or None,
        trust_env=not is_loopback(httpx.URL(access.server).host),
        timeout=httpx.Timeout(60, connect=5, pool=None),
        limits=httpx.Limits(max_connections=32, max_keepalive_connections=32, keepalive_expiry=30),
        headers=[*headers, *_impersonation(access.user)],
    )


def _impersonation(user: Mapping[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    """Headers as in client-go's ``transport/round_trippers.go``."""
    if not user.get("as"):
        return
    yield b"Impersonate-User", user["as"].encode()
    if user.get("as-uid"):
        yield b"Impersonate-Uid", user["as-uid"].encode()
    for group in user.get("as-groups") or ():
        yield b"Impersonate-Group", group.encode()
    for key, values in (user.get("as-user-extra") or {}).items():
        name = b"Impersonate-Extra-" + quote(key, safe=_HEADER_NAME).encode()
        yield from ((name, value.encode()) for value in values)
