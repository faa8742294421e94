"""Ending a cluster or a group: asked for once, waited for with a bound, and what blocks is named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gpuform.openstack.blockers import blockers
from gpuform.plugins.handler import PluginError, Properties
from gpuform.plugins.openstack.api import ApiError, Live, Magnum
from gpuform.plugins.openstack.projects import require_own
from gpuform.plugins.openstack.waiting import Failed, Late, Wait, mark, reason


async def delete(
    wait: Wait, magnum: Magnum, cluster: str, ask: Callable[[], Awaitable[Any]], olds: Properties
) -> None:
    """Have it deleted and wait until it is gone; already gone is success.

    One that an earlier run, or anybody, has begun to delete is waited for and not asked again; one whose
    deletion failed is asked again. Raises `PluginError` at the bound and where the deletion fails, with what
    stands in its way as far as the cloud's services tell; the next run goes on from there. And where it is in
    another project than the credentials: ``olds`` are the outputs of the thing.
    """
    live = await wait.look()
    if live is None:
        await require_own(magnum, wait.what, olds)
        return
    status = str(live.get("status"))
    if status == "DELETE_IN_PROGRESS":
        await wait.call.status(f"{wait.what}: is being deleted already; waiting")
    else:
        await ask()
    before = mark(live) if status == "DELETE_FAILED" else None
    try:
        await wait.gone(before)
    except Failed as failed:
        raise PluginError(await _stuck(wait, magnum, cluster, failed.live, reason(failed.live))) from None
    except Late as late:
        said = f"still {(late.live or {}).get('status')} after {late.waited_s / 60:.0f} min"
        raise PluginError(await _stuck(wait, magnum, cluster, late.live, said)) from None


async def _stuck(wait: Wait, magnum: Magnum, cluster: str, live: Live | None, said: str) -> str:
    """Why it is still there, in Magnum's words, and what is in its way as far as that can be asked."""
    again = "then run the same command again, which goes on"
    try:
        whole = live if live and live.get("uuid") == cluster else await magnum.cluster(cluster)
    except ApiError as error:
        unasked = f"what is in its way could not be asked ({error})"
        return f"{wait.what}: {said}; {unasked}; end what the reason names, {again}"
    found = await asyncio.to_thread(blockers, magnum.cloud, whole or live or {"uuid": cluster})
    lines = "".join(f"\n  {line}" for line in found)
    blocked = (
        f"; in its way may be:{lines}\nend these" if found else "; no load balancer, port or stack is named"
    )
    return f"{wait.what}: {said}{blocked}; {again}"
