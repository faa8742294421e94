"""A certificate authority shared by Magnum and an API server, so that Magnum's certificates are accepted.

Magnum names its authority after the cluster, and uses this name as the issuer of its certificates, so the
embedded control plane must have an authority of that name: it takes over the certificates in its folder.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


def write_certificates(folder: Path, name: str, identified: bool = False) -> None:
    """Write ``ca`` and ``admin``, each .crt and .key, as kwokctl does, except for the authority's name.

    Without key identifiers, as EKS' and Magnum's own, unless ``identified``: the lab reads with Python's
    default settings, which require them from 3.13 on.
    """
    folder.mkdir(parents=True, mode=0o700)
    authority = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    key_usage = x509.KeyUsage(True, False, True, False, False, True, False, False, False)
    root = (
        _certificate(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(key_usage, critical=True)
    )
    if identified:
        own_key = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
        root = root.add_extension(own_key, critical=False)
    _write(folder / "ca", root.sign(authority, hashes.SHA256()), authority)
    admin = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = [(NameOID.COMMON_NAME, "kwok-admin"), (NameOID.ORGANIZATION_NAME, "system:masters")]
    addresses = [x509.IPAddress(ipaddress.ip_address(entry)) for entry in ("127.0.0.1", "::1")]
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    leaf = (
        _certificate(x509.Name([x509.NameAttribute(*entry) for entry in subject]), issuer, admin.public_key())
        .add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, _NAMES), *addresses]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    )
    if identified:
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        leaf = leaf.add_extension(issuer_key, critical=False)
    _write(folder / "admin", leaf.sign(authority, hashes.SHA256()), admin)


def _certificate(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + 365 * day)
    )


def _write(stem: Path, certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> None:
    stem.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # as kwok's own keys are
        serialization.NoEncryption(),
    )
    stem.with_suffix(".key").write_bytes(private)
    stem.with_suffix(".key").chmod(0o600)
