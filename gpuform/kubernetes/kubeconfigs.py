"""Kubeconfigs that their cluster does not accept, or no longer: the error, and what to do."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.errors import Failure

FOLDER = "kubeconfigs"
"""Folder below the state for kubeconfigs that are stack outputs; each lies there only while it is needed."""

_UNAUTHORIZED = 401
_OTHER_AUTHORITY = ("unable to get local issuer", "self-signed certificate", "certificate signature failure")
_NOT_TAKEN = (
    "alert certificate expired",
    "alert unknown ca",
    "alert bad certificate",
    "certificate required",
)
"""OpenSSL's messages (crypto/x509/x509_txt.c, ssl/ssl_stat.c): the first tuple when we reject the server's
certificate, the second when the server rejects ours."""


@contextmanager
def answered() -> Iterator[None]:
    """Turn kr8s errors into an OSError, which callers also get if a cluster is unreachable.

    Rejected credentials (401) are a PermissionError. httpx errors pass through.
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
    """The Failure if the cluster answers but does not accept the kubeconfig; None for any other error."""
    user, why = _user(kubeconfig), _why(error)
    if not why:
        return None
    why = _ended(user) or why
    fact = f"does not accept its kubeconfig: {why} ({said(error)})"
    if "client-certificate-data" not in user or kubeconfig.parent.parent.name != FOLDER:
        return Failure(
            f"cluster of {stack}", fact, f"get a new one from the cluster's administrator: {kubeconfig}"
        )
    fresh = f"`gpuform recover {stack} --renew-kubeconfig`"
    return Failure(f"cluster of {stack}", fact, f"issue a new one with {fresh}, then `gpuform up {stack}`")


def unreachable(stack: str, kubeconfig: Path, error: Exception) -> Failure:
    """The Failure for a cluster that does not answer, or does not accept this kubeconfig."""
    away = Failure(f"cluster of {stack}", f"cannot be reached ({said(error)})", f"check {kubeconfig}")
    return refused(stack, kubeconfig, error) or away


def said(error: BaseException) -> str:
    """An error's text, or that of its cause or context: httpx may leave both message and cause out."""
    while not str(error) and (origin := error.__cause__ or error.__context__):
        error = origin
    return str(error) or type(error).__name__


def _why(error: Exception) -> str:
    words = said(error).lower()
    if isinstance(error, PermissionError) and error.errno is None:
        return "the API server rejects its credentials"
    if any(one in words for one in _OTHER_AUTHORITY):
        return "the API server's certificate is from another authority"
    return "its client certificate is refused" if any(one in words for one in _NOT_TAKEN) else ""


def _ended(user: Mapping[str, Any]) -> str:
    """Says when the client certificate expired; empty if it has not, or if that cannot be determined."""
    try:
        from cryptography import x509

        pem = base64.b64decode(str(user.get("client-certificate-data") or ""))
        ends = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except (ImportError, ValueError):
        return ""
    return f"its client certificate expired {ends:%Y-%m-%d}" if ends < datetime.now(UTC) else ""


def _user(kubeconfig: Path) -> Mapping[str, Any]:
    """The first user in the file: a stack's own kubeconfig has only one."""
    try:
        found = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError):
        return {}
    return found if isinstance(found, Mapping) else {}
