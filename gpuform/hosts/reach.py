"""Which hosts answer, checked before a run so that it does not wait for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

SECONDS = 5.0  # a host in the same network answers in milliseconds; a preview does not wait for the others


async def reachable(
    inventory: Mapping[str, Any], hosts: Sequence[str], seconds: float = SECONDS
) -> dict[str, str]:
    """Why a host's ssh port cannot be reached, for each of ``hosts``; empty if it can.

    All are checked at once. A host behind a jump host, or with another kind of connection, counts as
    reachable.
    """
    hostvars = (inventory.get("_meta") or {}).get("hostvars") or {}
    reasons = await asyncio.gather(*(_why_not(hostvars.get(name) or {}, name, seconds) for name in hosts))
    return dict(zip(hosts, reasons, strict=True))


async def _why_not(variables: Mapping[str, Any], name: str, seconds: float) -> str:
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
