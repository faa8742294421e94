"""This machine's place in the network: its VPCs, its public address, and endpoints that it can reach."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

_METADATA = "http://169.254.169.254/latest"
"""EC2 instance metadata service, version 2: it answers only with a token (EC2 user guide)."""
_WHO_AM_I = "https://checkip.amazonaws.com"
"""AWS's service that answers with the address of the client."""
_METADATA_S, _ADDRESS_S, _CONNECT_S = 1.0, 5.0, 10.0


@dataclass(frozen=True)
class Answer:
    """Result of a connection: ``error`` is empty on success; ``private``: to an address of the VPC."""

    error: str = ""
    private: bool = False


class Here:
    """This machine. With ``AWS_ENDPOINT_URL`` AWS is simulated, and this machine's place is unknown."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def vpcs(self) -> tuple[str, ...]:
        """Ids of the VPCs of this machine's interfaces; empty unless it is an EC2 instance."""
        off = self._environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        if off or self._simulated:
            return ()
        try:
            with httpx.Client(timeout=_METADATA_S, trust_env=False) as client:
                ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
                token = client.put(f"{_METADATA}/api/token", headers=ttl).raise_for_status().text
                client.headers["X-aws-ec2-metadata-token"] = token
                macs = f"{_METADATA}/meta-data/network/interfaces/macs/"
                listed = client.get(macs).raise_for_status().text.split()
                return tuple(client.get(f"{macs}{mac}vpc-id").raise_for_status().text for mac in listed)
        except httpx.HTTPError:
            return ()

    def address(self) -> str:
        """The public IPv4 address of this machine's requests; empty if unknown."""
        if self._simulated:
            return ""
        try:
            found = httpx.get(_WHO_AM_I, timeout=_ADDRESS_S).raise_for_status().text.strip()
            return str(ipaddress.IPv4Address(found))
        except (httpx.HTTPError, ValueError):
            return ""

    def connect(self, endpoint: str, authority: str) -> Answer:
        """Send a request to an API server; its certificate must be signed by ``authority`` (PEM).

        Any response is success. As with kubectl and the Kubernetes provider, ``HTTPS_PROXY`` is used.
        """
        try:
            trusted = ssl.create_default_context(cadata=authority)
            httpx.get(f"{endpoint}/version", verify=trusted, timeout=_CONNECT_S)
        except (httpx.HTTPError, OSError) as error:
            return Answer(str(error) or type(error).__name__)
        return Answer(private=_private(endpoint))

    @property
    def _simulated(self) -> bool:
        return bool(self._environ.get("AWS_ENDPOINT_URL"))


def _private(endpoint: str) -> bool:
    """Whether the name resolves to private addresses only, as it does in the VPC."""
    url = urlsplit(endpoint)
    try:
        found = socket.getaddrinfo(url.hostname, url.port or 443, type=socket.SOCK_STREAM)
    except OSError:  # only the proxy resolves it
        return True
    return all(ipaddress.ip_address(one[4][0]).is_private for one in found)
