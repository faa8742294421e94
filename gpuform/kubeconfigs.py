"""A kubeconfig that its cluster does not take, or not any more: what is told of it, and what to do."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from gpuform.errors import Failure

FOLDER = "kubeconfigs"
"""Below the state: where those lie that are outputs of a stack, for as long as they are needed."""

_UNAUTHORIZED = 401
_OTHER_AUTHORITY = ("unable to get local issuer", "self-signed certificate", "certificate signature failure")
_NOT_TAKEN = (
    "alert certificate expired",
    "alert unknown ca",
    "alert bad certificate",
    "certificate required",
)
"""OpenSSL's words (crypto/x509/x509_txt.c, ssl/ssl_stat.c), the first of what we see, the second of what the
server says of us."""


@contextmanager
def answered() -> Iterator[None]:
    """Turn kr8s' own errors into an OSError, as who cannot reach a cluster gets one.

    Credentials that nobody knows (401) are a PermissionError. What httpx raises passes.
    """
    import kr8s

    try:
        yield
    except kr8s.ServerError as error:
        status = error.response.status_code if error.response is not None else 0
        kind = PermissionError if status == _UNAUTHORIZED else OSError
        raise kind(f"HTTP {status}: {error}" if status else str(error)) from None
    except kr8s.APITimeoutError as error:
        raise OSError(str(error)) from None


def refused(stack: str, kubeconfig: Path, error: Exception) -> Failure | None:
    """What is told where the cluster answers and does not take the kubeconfig; None for any other trouble."""
    user, why = _user(kubeconfig), _why(error)
    if not why:
        return None
    why = _ended(user) or why
    fact = f"does not take its kubeconfig: {why} ({said(error)})"
    if "client-certificate-data" not in user or kubeconfig.parent.parent.name != FOLDER:
        return Failure(
            f"cluster of {stack}", fact, f"get another one from who runs the cluster: {kubeconfig}"
        )
    fresh = f"`gpuform recover {stack} --renew-kubeconfig`"
    return Failure(f"cluster of {stack}", fact, f"have one made anew by {fresh}, then `gpuform up {stack}`")


def unreachable(stack: str, kubeconfig: Path, error: Exception) -> Failure:
    """What is told of a cluster that does not answer, or not to this kubeconfig."""
    away = Failure(f"cluster of {stack}", f"cannot be reached ({said(error)})", f"look at {kubeconfig}")
    return refused(stack, kubeconfig, error) or away


def said(error: BaseException) -> str:
    """An error in words: its own, or of what it came from, for httpx may leave both message and cause out."""
    while not str(error) and (origin := error.__cause__ or error.__context__):
        error = origin
    return str(error) or type(error).__name__


def _why(error: Exception) -> str:
    words = said(error).lower()
    if isinstance(error, PermissionError) and error.errno is None:
        return "nobody there knows its credentials"
    if any(one in words for one in _OTHER_AUTHORITY):
        return "the API server's certificate is of another authority"
    return "its client certificate is refused" if any(one in words for one in _NOT_TAKEN) else ""


def _ended(user: Mapping[str, Any]) -> str:
    """That the client certificate is of the past; empty where it is not, or where that cannot be told."""
    try:
        from cryptography import x509

        pem = base64.b64decode(str(user.get("client-certificate-data") or ""))
        ends = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except (ImportError, ValueError):
        return ""
    return f"its client certificate ended {ends:%Y-%m-%d}" if ends < datetime.now(UTC) else ""


def _user(kubeconfig: Path) -> Mapping[str, Any]:
    """The first user in it: a stack's own has but one."""
    try:
        found = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError):
        return {}
    return found if isinstance(found, Mapping) else {}
