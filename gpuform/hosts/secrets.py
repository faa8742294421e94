"""Secrets of an inventory, and hiding them in every text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "(hidden)"
# Ansible's own variables that hold a secret, and ours, by the last word of the name.
_NAMES = re.compile(r"(^|_)(pass|password|passphrase|secret|token|private_key)$")
_URL_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_LONG_TEXT = 8  # characters
_SHORTEST = 4  # characters: hiding "a" everywhere hides the message


def secrets_of(value: Any) -> Iterator[str]:
    """Every secret text in an inventory: variables with a secret's name, and passwords inside URLs."""
    for name, text in _named_texts(value):
        if _NAMES.search(name):
            yield text
        yield from _URL_PASSWORD.findall(text)


def texts_of(value: Any) -> Iterator[str]:
    """Every text that may be a secret, in an inventory that is secret as a whole.

    Short texts are words that messages need, and Ansible's own variables only say how a host is reached.
    """
    texts = ((name, text) for name, text in _named_texts(value) if len(text) >= _LONG_TEXT)
    return (text for name, text in texts if not name.startswith("ansible_"))


def _named_texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(name of the variable, text) of each text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named_texts(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named_texts(item, name)
    elif isinstance(value, str):
        yield name, value


class SecretFilter:
    """Replaces secrets in texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Longer secrets are replaced first, so that one that contains another is hidden as a whole."""
        known = {text for secret in secrets for text in (secret, *secret.splitlines())}
        self._secrets = sorted((text for text in known if len(text) >= _SHORTEST), key=len, reverse=True)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, HIDDEN)
            return _URL_PASSWORD.sub(lambda match: match[0].replace(match[1], HIDDEN), value)
        if isinstance(value, Mapping):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return value
