"""What Magnum takes its time for, a cluster or a node group: made, read, changed and ended with a wait."""

from __future__ import annotations

from dataclasses import replace

from gpuform.plugins.handler import Call, Cancelled, InitFailed, PluginError, Properties, ReadResult
from gpuform.plugins.openstack import begun
from gpuform.plugins.openstack.api import ApiError, Live, Magnum
from gpuform.plugins.openstack.deleting import delete
from gpuform.plugins.openstack.endings import ended, late_told
from gpuform.plugins.openstack.projects import require_own
from gpuform.plugins.openstack.resource import CREATE_FAILED, UNFINISHED, MagnumResource, bound
from gpuform.plugins.openstack.waiting import BEGINS_S, Gone, Late, Still, Wait, in_progress, reason
from gpuform.plugins.properties import reveal

CREATE_S, UPDATE_S, DELETE_S = 3600.0, 1800.0, 1800.0
"""The official provider's own bounds (resource_openstack_containerinfra_cluster_v1.go, Timeouts)."""

_AGAIN = (
    "The next up looks for it again and makes no second one, for the request may only be late; "
    "'pulumi refresh' takes it out of the state"
)


class SlowResource(MagnumResource):
    """One of the two types; what each does in its own way is said by the methods that raise here."""

    async def start(self, call: Call, magnum: Magnum, inputs: Properties) -> tuple[str, bool]:
        """Ask Magnum for it, as `begin` does: its id, and whether it was taken over."""
        raise NotImplementedError

    async def change(
        self, wait: Wait, magnum: Magnum, id: str, live: Live, before: Properties, now: Properties
    ) -> Live:
        """Bring what is there in line with the program; as it is then."""
        raise NotImplementedError

    async def end(self, magnum: Magnum, id: str) -> None:
        """Ask for its end; already gone is success."""
        raise NotImplementedError

    def found(self, id: str, live: Live) -> str:
        """Its id, where ``id`` may have names in it."""
        raise NotImplementedError

    async def whole(self, magnum: Magnum, live: Live, inputs: Properties, olds: Properties) -> Properties:
        """The outputs of one that is there."""
        return self.outputs(magnum, live, inputs)

    async def seen(self, magnum: Magnum, live: Live, inputs: Properties, olds: Properties) -> Properties:
        """The outputs as a refresh finds them."""
        return await self.whole(magnum, live, inputs, olds)

    def making_s(self, inputs: Properties) -> float:
        """How long making it may take where the program does not say."""
        return CREATE_S

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Make it and wait. What an interrupted run began is gone on with, or, if it failed, made anew."""
        if call.preview:
            return "", self.planned(news)
        magnum, inputs = self.magnum(news), reveal(news)
        while True:
            id, taken = await self.start(call, magnum, inputs)
            try:
                return id, await self._finished(call, magnum, id, news, {})
            except InitFailed as failure:
                if not (taken and failure.properties.get(UNFINISHED) == CREATE_FAILED):
                    raise
                await call.info(f"{failure}; it is deleted, and made anew")
            await self._delete(call, magnum, id, inputs, {})

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """Look at it; one that is not made, or failed to be, is reported as such, and kept."""
        magnum = self.magnum(olds, inputs)
        live = await self.look(magnum, id)
        if live is None:
            await require_own(magnum, f"{self.noun} {reveal(olds).get('name', id)}", olds)
            return None
        id, status = self.found(id, live), str(live.get("status"))
        if status == CREATE_FAILED or (in_progress(live) and not status.startswith("UPDATE")):
            why = f"{self.noun} {live.get('name')}: {reason(live) if status == CREATE_FAILED else status}"
            raise self.init_failed(magnum, id, live, inputs, why)
        outputs = await self.seen(magnum, live, inputs, olds)
        return ReadResult(id, outputs, self.refreshed(outputs, inputs, olds))

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Change it and wait; what was not finished is waited for first."""
        if call.preview:
            return self.planned(news, olds)
        magnum = self.magnum(olds, news)
        if reveal(olds).get(UNFINISHED):
            olds = await self._finished(call, magnum, id, news, olds)
        wait = self._wait(call, magnum, id, news, UPDATE_S)
        try:
            live = await wait.settled()
            if str(live["status"]).startswith(("CREATE_FAILED", "DELETE")):
                raise PluginError(f"{wait.what}: {reason(live)}; nothing can be changed in it")
            live = await self.change(wait, magnum, id, live, reveal(old_inputs), reveal(news))
        except Late as late:
            raise PluginError(late_told(wait, late)) from None
        except (Gone, Still) as end:
            if isinstance(end, Gone):
                await require_own(magnum, wait.what, olds)
            raise PluginError(ended(wait, end)) from None
        return await self.whole(magnum, live, news, olds)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete it and wait until it is gone with all that is in it."""
        inputs = reveal(old_inputs or olds)
        magnum = self.magnum(olds, inputs)
        if reveal(olds).get(UNFINISHED):
            await self._asked_for_just_now(call, magnum, id, inputs)
        await self._delete(call, magnum, id, inputs, olds)
        begun.forget(call.urn)

    async def _asked_for_just_now(self, call: Call, magnum: Magnum, id: str, inputs: Properties) -> None:
        """Wait for what an interrupted run has asked for and Magnum may not show yet: it would come once the
        state has forgotten it, and be nobody's.
        """
        noted = begun.note(call.urn)
        left = BEGINS_S - noted.age.total_seconds() if noted is not None else 0.0
        if left > 0:
            await replace(self._wait(call, magnum, id, inputs, left), bound_s=left).appeared()

    async def _delete(
        self, call: Call, magnum: Magnum, id: str, inputs: Properties, olds: Properties
    ) -> None:
        wait = self._wait(call, magnum, id, inputs, DELETE_S)
        cluster = id.partition("/")[0]  # of a group, whose id is CLUSTER/GROUP, too
        await delete(wait, magnum, cluster, lambda: self.end(magnum, id), olds)

    def _wait(self, call: Call, magnum: Magnum, id: str, inputs: Properties, default_s: float) -> Wait:
        what = f"{self.noun} {reveal(inputs).get('name', id)}"
        return Wait(call, what, lambda: self.look(magnum, id), bound(call, default_s))

    async def _finished(
        self, call: Call, magnum: Magnum, id: str, news: Properties, olds: Properties
    ) -> Properties:
        """Wait until it is made; its outputs. Whatever goes wrong, the engine keeps what is there.

        Raises `InitFailed` for a thing that is there and is not what it should be, `PluginError` for one that
        is not there any more.
        """
        wait = self._wait(call, magnum, id, news, self.making_s(reveal(news)))
        live: Live | None = None
        try:
            live = await wait.appeared()
            if live is None:
                why = "Magnum took the request and shows nothing of it; is its conductor running? " + _AGAIN
                raise self.init_failed(magnum, id, None, news, f"{wait.what}: {why}")
            live = await wait.settled()
            if live["status"] != CREATE_FAILED:
                return await self.whole(magnum, live, news, olds)
            why = f"{reason(live)}; the next up deletes it and makes it anew"
        except Late as late:
            live, why = late.live, late_told(wait, late).partition(": ")[2]
        except Gone:
            raise PluginError(f"{wait.what}: it was deleted while it was made") from None
        except (ApiError, Cancelled) as stop:
            why = f"{stop}; Magnum goes on, and the next up waits for it"
        raise self.init_failed(magnum, id, live, news, f"{wait.what}: {why}")
