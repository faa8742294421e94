"""Names and addresses of machines, and addresses of what they serve."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

_DNS_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_DNS_NAME = re.compile(rf"(?:{_DNS_LABEL}\.)*{_DNS_LABEL}\.?", re.ASCII)
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.ASCII | re.IGNORECASE)
"""Names that resolvers and ssh read as an IPv4 address, such as 10.1 and 10.0.0.256 (inet_aton(3))."""
_LONGEST_NAME = 253
INTERFACE = re.compile(r"(?!\.{1,2}$)[\w.-]{1,15}", re.ASCII)
"""Name of a network interface, by which alone a link-local address is reached. Linux takes more, in at
most 15 bytes (net/core/dev.c, dev_valid_name)."""
PORT = r"(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
"""A port from 1 to 65535, as part of a pattern."""


def is_host(value: str) -> bool:
    """Whether it is an IP address that one machine may have, or a DNS name (RFC 1123, 2.1)."""
    try:
        address = _ip(value)
    except ValueError:
        name = value.removesuffix(".")
        return bool(
            _DNS_NAME.fullmatch(value) and len(name) <= _LONGEST_NAME and not _NUMERIC.fullmatch(value)
        )
    scope = getattr(address, "scope_id", None)
    if address.is_link_local or scope is not None:
        return bool(INTERFACE.fullmatch(scope or ""))
    # What Python calls reserved in IPv6 includes ::1 and NAT64's 64:ff9b::/96 (RFC 6052, 2.1).
    reserved = address.version == 4 and address.is_reserved
    return not (address.is_unspecified or address.is_multicast or reserved)


def is_loopback(value: str) -> bool:
    """Whether it is a host that only this machine reaches (RFC 6761, 6.3 for ``localhost``)."""
    try:
        return _ip(value).is_loopback
    except ValueError:
        return normalize_host(value) == "localhost"


def normalize_host(value: str) -> str:
    """One spelling of a host: DNS names ignore case and a dot at the end, IPv6 has many spellings."""
    try:
        return str(_ip(value))
    except ValueError:
        return value.removesuffix(".").lower()


def _ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(value)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_plain_url(value: str, *schemes: str) -> bool:
    """Whether it is scheme://host:port/path, without a user, query, fragment, blanks and dot segments."""
    if not re.fullmatch(r"[!-~]+", value) or any(char in value for char in '@?#{}"<>\\^`|'):
        return False
    try:
        parts = urlsplit(value)
        valid = parts.scheme in schemes and is_host(parts.hostname or "") and parts.port != 0
    except ValueError:
        return False
    return valid and not parts.netloc.endswith(":") and not {".", ".."} & set(parts.path.split("/"))
