"""HTTP sessions that do what a kubeconfig says: identity, impersonation, TLS and proxy."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from gpuform.kubernetes.credentials import Tokens, create_ssl_context
from gpuform.kubernetes.kubeconfig import Access
from infra.model.base.hostnames import is_loopback

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
