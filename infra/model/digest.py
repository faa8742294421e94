"""Short hash of a content, for names and annotations that change with it."""

from __future__ import annotations

import hashlib


def digest(content: str) -> str:
    """The first eight hex digits of its SHA-256."""
    return hashlib.sha256(content.encode()).hexdigest()[:8]
