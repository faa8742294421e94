"""Validation of the inputs of HostConfiguration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpuform.hosts.listing import hosts_of
from gpuform.hosts.runner import secrets_of, texts_of
from gpuform.provider.handler import CheckResult, Properties, unknown_inputs
from gpuform.provider.properties import UNKNOWN, Secret, reveal
from infra.inventory import from_json

INPUTS = ("inventory", "playbook", "content", "connection")
PLAYBOOK = "site.yml"
FORKS = 20  # ansible/ansible.cfg
_Failures = Iterator[tuple[str, str]]


def check_inputs(news: Properties) -> CheckResult:
    """The inputs with defaults; an inventory that contains a password becomes a secret."""
    inputs = {key: value for key, value in news.items() if value is not None}
    inputs.setdefault("playbook", PLAYBOOK)
    failures = [*unknown_inputs(inputs, INPUTS), *_failures(reveal(inputs))]
    if not failures and isinstance(inputs["inventory"], str) and any(secrets_of(inventory_of(inputs))):
        inputs["inventory"] = Secret(inputs["inventory"])
    return CheckResult(inputs, failures)


def inventory_of(inputs: Properties) -> dict[str, Any]:
    return from_json(str(reveal(inputs["inventory"])))


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
        yield from _inventory_failures(plain.get("inventory"))
    playbook = plain["playbook"]
    if playbook is not UNKNOWN and (not isinstance(playbook, str) or "/" in playbook or playbook[:1] == "-"):
        yield "playbook", f"{playbook!r} is not a file in ansible/playbooks; name one, such as {PLAYBOOK}"
    connection = plain.get("connection") or {}
    if connection is UNKNOWN:
        return
    if not isinstance(connection, dict) or set(connection) - {"forks"}:
        yield "connection", f"takes only forks, the number of hosts at once (default {FORKS})"
    elif not _is_count(forks := connection.get("forks")):
        yield "connection.forks", f"{forks!r} is not a number of hosts; give 1 or more"


def _is_count(value: Any) -> bool:
    positive = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return positive or value is None or value is UNKNOWN


def _inventory_failures(text: Any) -> _Failures:
    remedy = "give it as `ansible-inventory --list` prints it"
    try:
        data = json.loads(text)
    except (TypeError, ValueError) as error:
        yield "inventory", f"is not JSON ({error}); {remedy}"
        return
    if not isinstance(data, dict) or not isinstance((data.get("_meta") or {}).get("hostvars"), dict):
        yield "inventory", f"has no _meta.hostvars; {remedy}"
    elif not hosts_of(data):
        yield "inventory", "has no host; declare pools with hosts"
