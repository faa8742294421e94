"""Computes fingerprints of armored public keys on the control node: hosts need no gpg for it."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from ansible.errors import AnsibleFilterError

_PUBLIC_KEY = 6  # packet types of RFC 9580, section 5
_BEGIN, _END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"


def key_fingerprints(armored: str) -> list[str]:
    """Fingerprints of the primary keys in an armored text, in their order; version 4 keys only."""
    found = [_fingerprint(body) for kind, body in _packets(_bytes(armored)) if kind == _PUBLIC_KEY]
    if not found:
        raise AnsibleFilterError("the text contains no public key; export one with `gpg --armor --export`")
    return found


def _bytes(armored: str) -> bytes:
    """The decoded key, without armor headers and checksum."""
    lines = [line.strip() for line in armored.strip().splitlines()]
    if lines.count(_BEGIN) != 1 or lines.count(_END) != 1:
        raise AnsibleFilterError("is not one armored public key; export one with `gpg --armor --export`")
    block = lines[lines.index(_BEGIN) + 1 : lines.index(_END)]
    data = "".join(line for line in block if ":" not in line and not line.startswith("="))
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise AnsibleFilterError(f"the key's armor is broken ({error}); download the file again") from error


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        kind, start, length = _header(data, position)
        if kind is None or start + length > len(data):
            raise AnsibleFilterError("the key is truncated or of an unknown format; download the file again")
        yield kind, data[start : start + length]
        position = start + length


def _header(data: bytes, at: int) -> tuple[int | None, int, int]:
    """Type of the packet (None if unknown), start and length of its body (RFC 9580, section 4.2)."""
    first, rest = data[at], data[at + 1 : at + 6]
    if not first & 0x40:
        size = {0: 1, 1: 2, 2: 4}.get(first & 3, 0)
        return (first >> 2 & 15) if size else None, at + 1 + size, int.from_bytes(rest[:size])
    if rest[0] < 192:
        return first & 63, at + 2, rest[0]
    if rest[0] < 224:
        return first & 63, at + 3, (rest[0] - 192 << 8) + rest[1] + 192
    return (first & 63 if rest[0] == 255 else None), at + 6, int.from_bytes(rest[1:5])


def _fingerprint(body: bytes) -> str:
    if body[0] != 4:
        raise AnsibleFilterError(f"is a version {body[0]} key; repositories are signed with version 4 keys")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2) + body, usedforsecurity=False).hexdigest().upper()


class FilterModule:
    """The filters that the role's tasks use."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"key_fingerprints": key_fingerprints}
