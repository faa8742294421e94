"""Credentials of a kubeconfig user: TLS material, bearer tokens, exec plugins."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuform.kubernetes.kubeconfig import Access

_CERTIFICATE = ("client-certificate-data", "client-key-data")
_AUTHORITY = "certificate-authority-data"
_EXEC_SECONDS = 60  # an exec plugin that prompts a person gets no answer


def create_ssl_context(access: Access, user: Mapping[str, Any] | None = None) -> ssl.SSLContext | bool:
    """The TLS settings of ``access``; `OSError` or `ValueError` if unusable."""
    cluster = access.cluster
    user = access.user if user is None else user
    if cluster.get("insecure-skip-tls-verify"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif cluster.get(_AUTHORITY):
        data = base64.b64decode(cluster[_AUTHORITY]).decode()
        context = trust(data)
    else:
        context = trust(file=cluster.get("certificate-authority"))
    _load_client_certificate(context, user)
    return context


def trust(authority: str | None = None, file: str | None = None) -> ssl.SSLContext:
    """The TLS settings for an API server with a certificate of this authority (PEM), or of a public one.

    From Python 3.13 on, the default settings reject certificates without key identifiers. EKS and Magnum
    issue such certificates (kubernetes-client/python issue 2394), and kubectl accepts them.
    """
    context = ssl.create_default_context(cadata=authority, cafile=file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_client_certificate(context: ssl.SSLContext, user: Mapping[str, Any]) -> None:
    parts = [
        base64.b64decode(user[f"{name}-data"]) if user.get(f"{name}-data") else Path(user[name]).read_bytes()
        for name in ("client-certificate", "client-key")
        if user.get(name) or user.get(f"{name}-data")
    ]
    if parts:
        with as_file(b"\n".join(parts)) as path:
            context.load_cert_chain(path)


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Name of a file with ``content``: the ssl module loads a key from a file only.

    On Linux the file is in memory, so that a killed process leaves no key on a disk.
    """
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("client-key"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


class Tokens:
    """The Authorization header of a kubeconfig user, renewed when an exec plugin's token expires."""

    def __init__(self, access: Access) -> None:
        self._user, self._cluster = access.user, access.cluster
        self._lock = asyncio.Lock()
        self._token = ""
        self._certificate: dict[str, str] = {}
        self._expires: datetime | None = None

    async def certified_user(self) -> Mapping[str, Any]:
        """The user with the client certificate that its exec plugin returns, if any. Raises as `header`."""
        if self._user.get("exec"):
            await self.header()
        return {**self._user, **self._certificate}

    @property
    def renewable(self) -> bool:
        return bool(self._user.get("exec") or self._user.get("tokenFile"))

    async def header(self, renew: bool = False) -> dict[str, str]:
        """The header, empty for users with a client certificate. Raises OSError if the exec plugin fails."""
        user = self._user
        if user.get("tokenFile"):  # before token, and read again for each request: it is rotated
            return bearer(Path(user["tokenFile"]).read_text().strip())
        if user.get("token"):
            return bearer(str(user["token"]))
        if user.get("username"):
            pair = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        if not user.get("exec"):
            return {}
        async with self._lock:
            stale = self._expires is not None and datetime.now(UTC) >= self._expires
            if renew or stale or not (self._token or self._certificate):
                await self._run(user["exec"])
        return bearer(self._token) if self._token else {}

    async def _run(self, spec: Mapping[str, Any]) -> None:
        extra = {item["name"]: item.get("value") or "" for item in spec.get("env") or ()}
        exec_spec: dict[str, Any] = {"interactive": False}
        if spec.get("provideClusterInfo"):
            exec_spec["cluster"] = _exec_cluster_info(self._cluster)
        info = {"apiVersion": spec["apiVersion"], "kind": "ExecCredential", "spec": exec_spec}
        try:
            process = await asyncio.create_subprocess_exec(
                spec["command"],
                *(spec.get("args") or ()),
                env=os.environ | extra | {"KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except FileNotFoundError:
            hint = f": {spec['installHint']}" if spec.get("installHint") else ""
            raise OSError(f"{spec['command']} is not installed{hint}") from None
        try:
            out, err = await asyncio.wait_for(process.communicate(), _EXEC_SECONDS)
        except TimeoutError:
            process.kill()
            raise OSError(f"{spec['command']} returned no token within {_EXEC_SECONDS} s") from None
        if process.returncode:
            raise OSError(f"{spec['command']} failed: {err.decode(errors='replace').strip()[-500:]}")
        try:
            status = json.loads(out)["status"] or {}
        except (ValueError, TypeError, LookupError):
            raise OSError(f"{spec['command']} returned no ExecCredential") from None
        pair = [status.get("clientCertificateData"), status.get("clientKeyData")]
        if not status.get("token") and not all(pair):
            raise OSError(f"{spec['command']} returned neither a token nor a client certificate with its key")
        self._token = status.get("token") or ""
        if all(pair):
            encoded = [base64.b64encode(str(text).encode()).decode() for text in pair]
            self._certificate = dict(zip(_CERTIFICATE, encoded, strict=True))
        expiry = status.get("expirationTimestamp")
        self._expires = datetime.fromisoformat(expiry) if expiry else None


def _exec_cluster_info(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """What an exec plugin is told about the cluster (clientauthentication/v1, ``Cluster``)."""
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
    info = {key: cluster[key] for key in (*keys, _AUTHORITY) if cluster.get(key)}
    if cluster.get("certificate-authority") and _AUTHORITY not in info:
        authority = Path(cluster["certificate-authority"]).read_bytes()
        info[_AUTHORITY] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = extension.get("extension")
    return info


def bearer(token: str) -> dict[str, str]:
    """The header; OSError, without the token, for one that the HTTP client would refuse and print."""
    if not all("!" <= letter <= "~" for letter in token):
        raise OSError("the token is not one word of ASCII")
    return {"Authorization": f"Bearer {token}"}
