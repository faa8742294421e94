"""Validation of the inputs of HostConfiguration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpuform.hosts.listing import hosts_of
from gpuform.hosts.secrets import secrets_of, texts_of
from gpuform.provider.handler import Checked, Properties
from gpuform.provider.properties import UNKNOWN, Secret, reveal
from infra.inventory import read

KNOWN = ("inventory", "playbook", "content", "connection")
PLAYBOOK = "site.yml"
FORKS = 20  # ansible/ansible.cfg
_Failures = Iterator[tuple[str, str]]


def checked(news: Properties) -> Checked:
    """The inputs with defaults; an inventory that contains a password becomes a secret."""
    inputs = {key: value for key, value in news.items() if value is not None}
    inputs.setdefault("playbook", PLAYBOOK)
    unknown = [
        (key, f"is not an input; the inputs are {', '.join(KNOWN)}") for key in inputs if key not in KNOWN
    ]
    failures = [*unknown, *_failures(reveal(inputs))]
    if not failures and isinstance(inputs["inventory"], str) and any(secrets_of(inventory_of(inputs))):
        inputs["inventory"] = Secret(inputs["inventory"])
    return Checked(inputs, failures)


def inventory_of(inputs: Properties) -> dict[str, Any]:
    return read(str(reveal(inputs["inventory"])))


def secrets_in(inputs: Properties) -> list[str]:
    """Texts of a secret inventory that must not be shown; empty if the inventory is not a secret."""
    if not isinstance(inputs["inventory"], Secret):
        return []
    return list(texts_of(inventory_of(inputs)["_meta"]["hostvars"]))


def forks_of(inputs: Properties) -> int | None:
    """Number of hosts in parallel, or None for the default of ansible.cfg."""
    forks = (reveal(inputs.get("connection")) or {}).get("forks")
    return int(forks) if forks else None


def _failures(plain: Properties) -> _Failures:
    if plain.get("inventory") is not UNKNOWN:
        yield from _inventory(plain.get("inventory"))
    playbook = plain["playbook"]
    if playbook is not UNKNOWN and (not isinstance(playbook, str) or "/" in playbook or playbook[:1] == "-"):
        yield "playbook", f"{playbook!r} is not a file in ansible/playbooks; name one, such as {PLAYBOOK}"
    connection = plain.get("connection") or {}
    if connection is UNKNOWN:
        return
    if not isinstance(connection, dict) or set(connection) - {"forks"}:
        yield "connection", f"takes only forks, the number of hosts at once (default {FORKS})"
    elif not _count(forks := connection.get("forks")):
        yield "connection.forks", f"{forks!r} is not a number of hosts; give 1 or more"


def _count(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return whole or value is None or value is UNKNOWN


def _inventory(text: Any) -> _Failures:
    form = "give it as `ansible-inventory --list` prints it"
    try:
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        yield "inventory", f"is not JSON ({error}); {form}"
        return
    if not isinstance(found, dict) or not isinstance((found.get("_meta") or {}).get("hostvars"), dict):
        yield "inventory", f"has no _meta.hostvars; {form}"
    elif not hosts_of(found):
        yield "inventory", "has no host; declare pools with hosts"
