"""A cluster's kubeconfig: Magnum hands out none, it signs a certificate for a key that is made here."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import yaml

from gpuform.plugins.openstack.api import Magnum

_BITS = 3072
_USER, _GROUP = "admin", "system:masters"
_RENEWED_BEFORE = timedelta(days=30)
_PART = 3  # of what a certificate lasts, where that is short: else each run would renew what it has just got


async def kubeconfig(magnum: Magnum, uuid: str, name: str, host: str) -> dict[str, str]:
    """The map that the official provider gives out; its key has left this process only within it.

    Its certificate is of user admin in group system:masters, valid for as long as the cloud's Magnum says.
    """
    authority = await magnum.authority(uuid)
    key, request = await asyncio.to_thread(_key)
    certificate = await magnum.sign(uuid, request)
    return {
        "raw_config": _written(name, host, authority, certificate, key),
        "host": host,
        "cluster_ca_certificate": authority,
        "client_certificate": certificate,
        "client_key": key,
    }


def usable(known: Mapping[str, str] | None, host: str, authority: str = "") -> bool:
    """Whether a kubeconfig of an earlier run still does: for this address, and not about to expire.

    Where the certificate of the cluster's ``authority`` is given, it has to be that one as well: Magnum may
    have rotated it (``openstack coe ca rotate``).
    """
    if known and authority and str(known.get("cluster_ca_certificate")).strip() != authority.strip():
        return False
    if not known or known.get("host") != host or not known.get("client_certificate"):
        return False
    renewed = _renewed(str(known["client_certificate"]))
    return renewed is None or datetime.now(UTC) < renewed


def _renewed(certificate: str) -> datetime | None:
    """From when on another one is asked for; None where nobody can read it."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        return None
    lasts = found.not_valid_after_utc - found.not_valid_before_utc
    return found.not_valid_after_utc - min(_RENEWED_BEFORE, lasts / _PART)


def _key() -> tuple[str, str]:
    """A fresh key and a request to sign it, both PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    who = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, _USER),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _GROUP),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "gpuform"),
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(who).sign(key, hashes.SHA512())
    return (
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ).decode(),
        request.public_bytes(serialization.Encoding.PEM).decode(),
    )


def _written(name: str, host: str, authority: str, certificate: str, key: str) -> str:
    def data(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    user = f"{name}-{_USER}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"certificate-authority-data": data(authority), "server": host}}
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": data(certificate), "client-key-data": data(key)},
            }
        ],
    }
    return yaml.safe_dump(document, sort_keys=False)
