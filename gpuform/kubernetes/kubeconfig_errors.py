"""Kubeconfigs that their cluster does not accept, or no longer: the error, and what to do."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.errors import Failure

FOLDER = "kubeconfigs"
"""Folder below the state for kubeconfigs that are stack outputs; each lies there only while it is needed."""

_SERVER_REJECTED = ("unable to get local issuer", "self-signed certificate", "certificate signature failure")
_CLIENT_REJECTED = (
    "alert certificate expired",
    "alert unknown ca",
    "alert bad certificate",
    "certificate required",
)
"""OpenSSL's messages (crypto/x509/x509_txt.c, ssl/ssl_stat.c): the first tuple when we reject the server's
certificate, the second when the server rejects ours."""


class Forbidden(OSError):
    """The cluster accepts the credentials, and they do not give this right."""


def rejected_failure(stack: str, kubeconfig: Path, error: Exception) -> Failure | None:
    """The Failure if the cluster answers but does not accept the kubeconfig; None for any other error."""
    user, reason = _first_user(kubeconfig), _rejection(error)
    if not reason:
        return None
    reason = _expiry(user) or reason
    fact = f"does not accept its kubeconfig: {reason} ({error_text(error)})"
    if "client-certificate-data" not in user or kubeconfig.parent.parent.name != FOLDER:
        return Failure(
            f"cluster of {stack}", fact, f"get a new one from the cluster's administrator: {kubeconfig}"
        )
    command = f"`gpuform recover {stack} --renew-kubeconfig`"
    return Failure(f"cluster of {stack}", fact, f"issue a new one with {command}, then `gpuform up {stack}`")


def unreachable_failure(stack: str, kubeconfig: Path, error: Exception) -> Failure:
    """The Failure for a cluster that does not answer, or does not accept this kubeconfig."""
    if isinstance(error, Forbidden):
        fact = f"refuses what its kubeconfig has no right to ({error_text(error)})"
        return Failure(f"cluster of {stack}", fact, "grant get and list on nodes and pods")
    fact = f"cannot be reached ({error_text(error)})"
    failure = Failure(f"cluster of {stack}", fact, f"check {kubeconfig}")
    return rejected_failure(stack, kubeconfig, error) or failure


def error_text(error: BaseException) -> str:
    """An error's text, or that of its cause or context: httpx may leave both message and cause out."""
    while not str(error) and (cause := error.__cause__ or error.__context__):
        error = cause
    return str(error) or type(error).__name__


def _rejection(error: Exception) -> str:
    text = error_text(error).lower()
    if isinstance(error, PermissionError) and error.errno is None:
        return "the API server rejects its credentials"
    if any(message in text for message in _SERVER_REJECTED):
        return "the API server's certificate is from another authority"
    return "its client certificate is refused" if any(message in text for message in _CLIENT_REJECTED) else ""


def _expiry(user: Mapping[str, Any]) -> str:
    """Says when the client certificate expired; empty if it has not, or if that cannot be determined."""
    try:
        from cryptography import x509

        pem = base64.b64decode(str(user.get("client-certificate-data") or ""))
        expires = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except (ImportError, ValueError):
        return ""
    return f"its client certificate expired {expires:%Y-%m-%d}" if expires < datetime.now(UTC) else ""


def _first_user(kubeconfig: Path) -> Mapping[str, Any]:
    """The first user in the file: a stack's own kubeconfig has only one."""
    try:
        user = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError):
        return {}
    return user if isinstance(user, Mapping) else {}
