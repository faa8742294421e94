"""Waiting until a cluster or a group is made, and what is told where it is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gpuform.plugins.handler import Cancelled, PluginError, Properties
from gpuform.plugins.openstack.api import ApiError, Live, Magnum
from gpuform.plugins.openstack.endings import late_told
from gpuform.plugins.openstack.resource import CREATE_FAILED, MagnumResource
from gpuform.plugins.openstack.waiting import Gone, Late, Wait, reason

Outputs = Callable[[Live], Awaitable[Properties]]


async def finished(
    of: MagnumResource, wait: Wait, magnum: Magnum, id: str, news: Properties, outputs: Outputs
) -> Properties:
    """Wait until a thing is made; its outputs. Whatever goes wrong, the engine keeps what is there.

    Raises `InitFailed` for a thing that is there and is not what it should be, `PluginError` for one that is
    not there any more.
    """
    live: Live | None = None
    try:
        live = await wait.appeared()
        if live is None:
            why = "Magnum took the request and shows nothing of it; is its conductor running?"
            raise of.init_failed(magnum, id, None, news, f"{wait.what}: {why}")
        live = await wait.settled()
        if live["status"] != CREATE_FAILED:
            return await outputs(live)
        why = f"{reason(live)}; the next up deletes it and makes it anew"
    except Late as late:
        live, why = late.live, late_told(wait, late).partition(": ")[2]
    except Gone:
        raise PluginError(f"{wait.what}: it was deleted while it was made") from None
    except (ApiError, Cancelled) as stop:
        why = f"{stop}; Magnum goes on, and the next up waits for it"
    raise of.init_failed(magnum, id, live, news, f"{wait.what}: {why}")
