"""Why a task failed or a host was unreachable, in one line with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_LIMIT = 600  # characters: an apt failure is a page, and its first lines have the reason
_FINGERPRINT = re.compile(r"(SHA256:[A-Za-z0-9+/=]+)")
# ssh's messages and their meaning. Texts of OpenSSH: sshconnect.c, readconf of the host key, auth.
_SSH = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": (
        "wrong host key: it shows {key}, not the one in known_hosts; another machine answers at its address, "
        "or it was reinstalled: compare the key on its console, then correct known_hosts"
    ),
    "host key is known for": (
        "unknown host key: known_hosts has none for it; compare the key on its console and add it there "
        "(`ssh-keyscan` fetches it)"
    ),
    "Host key verification failed": (
        "host key not verified: known_hosts lacks it or has another; compare the key on its console"
    ),
    "UNPROTECTED PRIVATE KEY FILE": "the private key may be read by others; chmod 600 it",
    "Permission denied": (
        "ssh login refused; check cluster.user and cluster.private_key, and the host's authorized_keys"
    ),
}
_NETWORK = re.compile(
    r"(Connection timed out|Connection refused|No route to host|Network is unreachable|"
    r"Could not resolve hostname[^\r\n]*|Operation timed out|Connection (?:closed|reset) by[^\r\n]*)"
)


def unreachable_reason(result: Mapping[str, Any]) -> str:
    if "censored" in result:
        return "cannot be reached; the reason is hidden with the task's output: log in by ssh to see it"
    return _explain_ssh_error(str(result.get("msg") or ""))


def failure_reason(result: Mapping[str, Any]) -> str:
    """The reason in a module's result; what no_log hides stays hidden."""
    if "censored" in result:
        return "failed; its output is hidden, since it may contain secrets: check the host"
    return _shorten("; ".join(dict.fromkeys(_messages(result))) or "failed without a message")


def _explain_ssh_error(message: str) -> str:
    for text, meaning in _SSH.items():
        if text in message:
            fingerprint = _FINGERPRINT.search(message)
            return meaning.format(key=fingerprint[1] if fingerprint else "another")
    if network := _NETWORK.search(message):
        return f"cannot be reached ({network[1].strip()}); check its address, port and power"
    return _shorten(message) or "cannot be reached"


def _messages(result: Mapping[str, Any]) -> Iterator[str]:
    failed_items = [
        item for item in result.get("results") or [] if isinstance(item, Mapping) and item.get("failed")
    ]
    for item in failed_items:
        yield from _messages(item)
    if failed_items:
        return
    text = str(result.get("msg") or "").strip()
    if text:
        yield text
    if not text or "non-zero return code" in text:
        for key in ("stderr", "stdout", "module_stderr", "module_stdout"):
            if output := str(result.get(key) or "").strip():
                yield output
                return


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}..."
