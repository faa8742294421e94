"""``gpuform:hosts:HostConfiguration``: a playbook on own hosts, with a result for each host."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.checkout.errors import Failure, InputError, OperationError
from gpuform.checkout.listing import abbreviate
from gpuform.hosts import Event, HostResult, Outcome, run
from gpuform.hosts.listing import hosts_of
from gpuform.hosts.runner import secrets_of, texts_of
from gpuform.provider.handler import (
    Call,
    Change,
    CheckResult,
    DiffResult,
    InitFailed,
    Properties,
    ReadResult,
    unknown_inputs,
)
from gpuform.provider.properties import UNKNOWN, Secret, has_unknown, reveal
from infra.inventory import from_json

_INPUTS = ("inventory", "playbook", "content", "connection")
_PLAYBOOK = "site.yml"
_FORKS = 20  # ansible/ansible.cfg
_Failures = Iterator[tuple[str, str]]
_CONNECT_TIMEOUT_S = 5.0  # a host in the same network answers in milliseconds
_MAX_SHOWN = 6  # tasks of one host that a preview lists


class HostConfiguration:
    """Prepares hosts; deleting the resource leaves them as they are.

    The diff compares ``content``, a hash over inventory, roles and playbooks, and takes every host that was
    not ok the last time as a change, so that the next run resumes. A refresh runs the playbook in check mode.
    """

    def __init__(self) -> None:
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return _check_inputs(news)

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        changes = {
            key: Change.UPDATE
            for key in _INPUTS
            if has_unknown(news.get(key)) or reveal(old_inputs.get(key)) != reveal(news.get(key))
        }
        for name, result in (reveal(olds.get("hosts")) or {}).items():
            if not result.get("ok"):
                changes[f'hosts["{name}"]'] = Change.UPDATE
        return DiffResult(changes=changes, diffs=sorted({path.partition("[")[0] for path in changes}))

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        if call.preview:
            return "", await self._preview(call, news)
        return call.name, await self._apply(call, call.name, news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """Run the playbook in check mode; an unreachable host keeps its last result."""
        if not inputs:
            raise OperationError(
                f"{id}: a HostConfiguration cannot be imported; declare it; the next refresh checks the hosts"
            )
        hosts = dict(reveal(olds.get("hosts")) or {})
        outcome = await self._check_hosts(call, inputs)
        if outcome and outcome.message:
            raise OperationError(f"the hosts were not checked: {outcome.message}")
        for name, result in outcome.hosts.items() if outcome else ():
            hosts[name] = _drift(result)
        return ReadResult(id, {**inputs, "hosts": hosts}, inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        if call.preview:
            return await self._preview(call, news)
        return await self._apply(call, id, news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        hosts = ", ".join(sorted(reveal(olds.get("hosts")) or {})) or "no host"
        await call.info(f"nothing is removed from the hosts: driver and toolkit stay on {hosts}")

    async def _apply(self, call: Call, id: str, news: Properties) -> Properties:
        outcome = await self._run(call, news)
        outputs = {**news, "hosts": {name: result.to_json() for name, result in outcome.hosts.items()}}
        if outcome.ok:
            return outputs
        if not any(result.ok or result.changed for result in outcome.hosts.values()):
            raise OperationError("; ".join(outcome.failures))
        done = [name for name, result in outcome.hosts.items() if result.ok]
        hint = f"{len(done)} of {len(outcome.hosts)} hosts are done; run the same command again to continue"
        raise InitFailed(id, outputs, ["; ".join([*outcome.failures, hint])])  # one reason: all is shown

    async def _preview(self, call: Call, news: Properties) -> Properties:
        outputs = {**news, "hosts": UNKNOWN}
        if has_unknown(news):
            await call.info("the hosts were not checked: the inventory is not known yet")
            return outputs
        if os.environ.get("GPUFORM_OFFLINE"):
            await call.info("offline: the hosts were not checked")
            return outputs
        outcome = await self._check_hosts(call, news)
        if outcome and outcome.message:
            await call.warn(f"the hosts were not checked: {outcome.message}")
        for name, result in outcome.hosts.items() if outcome and not outcome.message else ():
            if not result.ok:
                await call.warn(f"host {name}: the check ended early: {result.message}")
            elif result.changed:
                await call.info(f"host {name} would change: {abbreviate(result.changes, _MAX_SHOWN)}")
            else:
                await call.info(f"host {name}: nothing to do")
        return outputs

    async def _check_hosts(self, call: Call, inputs: Properties) -> Outcome | None:
        """Check mode on the reachable hosts; None if all are unreachable."""
        inventory = inventory_of(inputs)
        reasons = await unreachable_reasons(inventory, hosts_of(inventory))
        for name, reason in reasons.items():
            if reason:
                await call.warn(f"host {name} was not checked: {reason}")
        limit = [name for name, reason in reasons.items() if not reason]
        return await self._run(call, inputs, check=True, limit=limit) if limit else None

    async def _run(
        self, call: Call, inputs: Properties, *, check: bool = False, limit: Sequence[str] = ()
    ) -> Outcome:
        loop = asyncio.get_running_loop()

        def on_event(event: Event) -> None:
            if text := _progress(event):
                asyncio.run_coroutine_threadsafe(call.status(text), loop)

        forks = (reveal(inputs.get("connection")) or {}).get("forks")
        try:
            return await asyncio.to_thread(
                run,
                str(reveal(inputs["playbook"])),
                inventory_of(inputs),
                check=check,
                limit=limit,
                forks=int(forks) if forks else None,  # ansible.cfg has a default
                secrets=_secrets_in(inputs),
                on_event=on_event,
                cancelled=lambda: call.cancelled.is_set() or self._closed.is_set(),
            )
        except (Failure, InputError) as error:
            raise OperationError(str(error)) from error


def _progress(event: Event) -> str:
    if event.kind == "task":
        return f"task {event.task}"
    if event.kind in ("changed", "failed", "unreachable"):
        return f"host {event.host}: {event.kind}: {event.task}"
    return ""


def _drift(result: HostResult) -> Mapping[str, Any]:
    """Result of a check; a host that a run would change is not ok."""
    drift = result.to_json()
    if result.ok and result.changed:
        drift |= {"ok": False, "message": f"differs: {abbreviate(result.changes, _MAX_SHOWN)}"}
    return drift


async def unreachable_reasons(
    inventory: Mapping[str, Any], hosts: Sequence[str], seconds: float = _CONNECT_TIMEOUT_S
) -> dict[str, str]:
    """Why a host's ssh port cannot be reached, for each of ``hosts``; empty if it can.

    All are checked at once. A host behind a jump host, or with another kind of connection, counts as
    reachable.
    """
    hostvars = (inventory.get("_meta") or {}).get("hostvars") or {}
    reasons = await asyncio.gather(*(_reach_error(hostvars.get(name) or {}, name, seconds) for name in hosts))
    return dict(zip(hosts, reasons, strict=True))


async def _reach_error(variables: Mapping[str, Any], name: str, seconds: float) -> str:
    options = str(variables.get("ansible_ssh_common_args") or "")
    if variables.get("ansible_connection", "ssh") != "ssh" or "Proxy" in options:
        return ""
    address, port = str(variables.get("ansible_host") or name), int(variables.get("ansible_port") or 22)
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), seconds)
    except TimeoutError:
        return f"no answer from {address}:{port} within {seconds:.0f} s"
    except OSError as error:
        return f"{address}:{port}: {error.strerror or error}"
    writer.close()
    return ""


def _check_inputs(news: Properties) -> CheckResult:
    """The inputs with defaults; an inventory that contains a password becomes a secret."""
    inputs = {key: value for key, value in news.items() if value is not None}
    inputs.setdefault("playbook", _PLAYBOOK)
    failures = [*unknown_inputs(inputs, _INPUTS), *_failures(reveal(inputs))]
    if not failures and isinstance(inputs["inventory"], str) and any(secrets_of(inventory_of(inputs))):
        inputs["inventory"] = Secret(inputs["inventory"])
    return CheckResult(inputs, failures)


def inventory_of(inputs: Properties) -> dict[str, Any]:
    return from_json(str(reveal(inputs["inventory"])))


def _secrets_in(inputs: Properties) -> list[str]:
    """Texts of a secret inventory that must not be shown; empty if the inventory is not a secret."""
    if not isinstance(inputs["inventory"], Secret):
        return []
    return list(texts_of(inventory_of(inputs)["_meta"]["hostvars"]))


def _failures(plain: Properties) -> _Failures:
    if plain.get("inventory") is not UNKNOWN:
        yield from _inventory_failures(plain.get("inventory"))
    playbook = plain["playbook"]
    if playbook is not UNKNOWN and (not isinstance(playbook, str) or "/" in playbook or playbook[:1] == "-"):
        yield "playbook", f"{playbook!r} is not a file in ansible/playbooks; name one, such as {_PLAYBOOK}"
    connection = plain.get("connection") or {}
    if connection is UNKNOWN:
        return
    if not isinstance(connection, dict) or set(connection) - {"forks"}:
        yield "connection", f"takes only forks, the number of hosts at once (default {_FORKS})"
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
