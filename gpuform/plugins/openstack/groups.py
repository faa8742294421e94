"""A node group of a cluster at Magnum."""

from __future__ import annotations

from typing import Any

from gpuform.plugins.handler import Call, InitFailed, PluginError, Properties, ReadResult
from gpuform.plugins.openstack import begun
from gpuform.plugins.openstack.api import ApiError, Live, Magnum
from gpuform.plugins.openstack.bounds import outside
from gpuform.plugins.openstack.clusters import CREATE_S, DELETE_S, UPDATE_S
from gpuform.plugins.openstack.deleting import delete
from gpuform.plugins.openstack.endings import ended, failed, late_told
from gpuform.plugins.openstack.making import finished
from gpuform.plugins.openstack.resource import CREATE_FAILED, UNFINISHED, MagnumResource, bound
from gpuform.plugins.openstack.table import NODE_GROUP, request
from gpuform.plugins.openstack.waiting import Gone, Late, Still, Wait, in_progress, mark, reason
from gpuform.plugins.properties import reveal

_NOT_SENT = ("clusterId",)
_CONFLICTS = (400, 409)


class NodeGroups(MagnumResource):
    """A group beside the two that every cluster has; its id is ``CLUSTER/GROUP``, both uuids."""

    table = NODE_GROUP
    noun = "node group"

    def refused(self, inputs: Properties) -> list[tuple[str, str]]:
        """Counts below nothing."""
        count = inputs.get("nodeCount")
        return [("nodeCount", "must be at least 0")] if isinstance(count, int) and count < 0 else []

    async def look(self, magnum: Magnum, id: str) -> Live | None:
        """The group of an id."""
        return await magnum.group(*split(id))

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Make it and wait until its nodes are there. What an interrupted run began is gone on with."""
        if call.preview:
            return "", self.planned(news)
        magnum, inputs = self.magnum(news), reveal(news)
        cluster = str(inputs["clusterId"])
        body = request(NODE_GROUP, {key: value for key, value in inputs.items() if key not in _NOT_SENT})
        if not inputs.get("mergeLabels"):
            body.pop("merge_labels", None)

        async def find(key: str) -> Live | None:
            return await magnum.group(cluster, key)

        async def make() -> str:
            return await magnum.create_group(cluster, body)

        while True:
            uuid, taken = await self.begin(call, magnum, inputs, find, make)
            id = f"{cluster}/{uuid}"
            try:
                return id, await self._finished(call, magnum, id, news)
            except InitFailed as failure:
                if not (taken and failure.properties.get(UNFINISHED) == CREATE_FAILED):
                    raise
                await call.info(f"{failure}; it is deleted, and made anew")
            await self._delete(call, magnum, id, inputs)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """Look at it; one that is not made, or failed to be, is reported as such, and kept."""
        magnum = self.magnum(inputs or olds)
        cluster, key = split(id)
        live = await magnum.group(cluster, key)
        if live is None:
            return None
        whole, status = f"{cluster}/{live['uuid']}", str(live.get("status"))
        if status == CREATE_FAILED or (in_progress(live) and not status.startswith("UPDATE")):
            why = f"{self.noun} {live['name']}: {reason(live) if status == CREATE_FAILED else status}"
            raise self.init_failed(magnum, whole, live, inputs, why)
        found = self.outputs(magnum, live, inputs)
        return ReadResult(whole, found, self.refreshed(found, inputs, olds))

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Resize it and change its bounds; or wait on for what was not finished."""
        if call.preview:
            return self.planned(news, olds)
        magnum = self.magnum(news)
        if reveal(olds).get(UNFINISHED):
            await self._finished(call, magnum, id, news)
        wait = self._wait(call, magnum, id, news, UPDATE_S)
        try:
            live = await wait.settled()
            if str(live["status"]).startswith(("CREATE_FAILED", "DELETE")):
                raise PluginError(f"{wait.what}: {reason(live)}; nothing can be changed in it")
            live = await _Change(wait, magnum, id, live).carry_out(reveal(old_inputs), reveal(news))
        except Late as late:
            raise PluginError(late_told(wait, late)) from None
        except (Gone, Still) as end:
            raise PluginError(ended(wait, end)) from None
        return self.outputs(magnum, live, news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete it and wait until its nodes are gone."""
        inputs = reveal(old_inputs or olds)
        await self._delete(call, self.magnum(inputs), id, inputs)
        begun.forget(call.urn)

    async def _delete(self, call: Call, magnum: Magnum, id: str, inputs: Properties) -> None:
        cluster, group = split(id)
        wait = self._wait(call, magnum, id, inputs, DELETE_S)
        await delete(wait, magnum, cluster, lambda: magnum.delete_group(cluster, group))

    def _wait(self, call: Call, magnum: Magnum, id: str, inputs: Properties, default_s: float) -> Wait:
        what = f"{self.noun} {reveal(inputs).get('name', id)}"
        return Wait(call, what, lambda: self.look(magnum, id), bound(call, default_s))

    async def _finished(self, call: Call, magnum: Magnum, id: str, news: Properties) -> Properties:
        """Wait until it is made; the outputs."""
        wait = self._wait(call, magnum, id, news, CREATE_S)

        async def outputs(live: Live) -> Properties:
            return self.outputs(magnum, live, news)

        return await finished(self, wait, magnum, id, news, outputs)


class _Change:
    """A change of size and bounds, in an order that Magnum takes.

    It refuses bounds that the present size breaks, and a size that the present bounds forbid
    (magnum/api/controllers/v1/nodegroup.py, cluster_actions.py): so the bounds are first widened to hold
    both, then the group is resized, then they get what they are to be. More nodes than the new maximum are
    an error and not taken away: which of them, and when, is for the autoscaler to say.
    """

    def __init__(self, wait: Wait, magnum: Magnum, id: str, live: Live) -> None:
        self.wait, self.magnum, self.live = wait, magnum, live
        self.cluster, self.group = split(id)

    async def carry_out(self, before: Properties, now: Properties) -> Live:
        """The group as it is then. Only what the program changed is asked for, where Magnum lacks it.

        Raises `PluginError`, before anything is asked, where there are more nodes than it may have then.
        """
        least, most = self._least(before, now), self._most(before, now)
        count = int(self.live["node_count"])
        unbounded = bool(before.get("maxNodeCount")) and not now.get("maxNodeCount")  # an autoscaler had it
        if unbounded or now["nodeCount"] != before.get("nodeCount", now["nodeCount"]):
            count = int(now["nodeCount"])
        count = max(count, least)
        self._within(count, least, most)
        # One that an earlier run has asked for, and that did not fail, is not asked for again.
        if count != self.live["node_count"] or self.live["status"] == "UPDATE_FAILED":
            await self._bounds(min(least, self._has("min_node_count")), self._widest(most))
            await self._resize(count)
        await self._bounds(least, most)
        return self.live

    def _within(self, count: int, least: int, most: int) -> None:
        wrong = outside(self.wait.what, self.cluster, str(self.live["name"]), count, least, most)
        if wrong:
            raise wrong from None

    def _has(self, name: str) -> int:
        return int(self.live.get(name) or 0)

    def _least(self, before: Properties, now: Properties) -> int:
        if now.get("minNodeCount") == before.get("minNodeCount"):
            return self._has("min_node_count")
        return int(now.get("minNodeCount") or 0)

    def _most(self, before: Properties, now: Properties) -> int:
        """The largest size, 0 for none."""
        if now.get("maxNodeCount") == before.get("maxNodeCount"):
            return self._has("max_node_count")
        return int(now.get("maxNodeCount") or 0)

    def _widest(self, most: int) -> int:
        present = self._has("max_node_count")
        return max(most, present) if most and present else 0

    async def _bounds(self, least: int, most: int) -> None:
        patch: list[dict[str, Any]] = []
        if least != self._has("min_node_count"):
            patch.append({"op": "replace", "path": "/min_node_count", "value": least})
        if most != self._has("max_node_count"):
            patch.append(
                {"op": "replace", "path": "/max_node_count", "value": most}
                if most
                else {"op": "remove", "path": "/max_node_count"}
            )
        if patch:
            before = mark(self.live)
            try:
                await self.magnum.patch_group(self.cluster, self.group, patch)
            except ApiError as error:
                if error.status not in _CONFLICTS:
                    raise
                self.live = await self.wait.look() or self.live  # the autoscaler may have been at it
                self._within(int(self.live["node_count"]), least, most)
                raise
            await self._settled(lambda now: mark(now) != before)

    async def _resize(self, count: int) -> None:
        before = mark(self.live)
        await self.magnum.resize(self.cluster, count, self.group)
        await self._settled(lambda now: mark(now) != before and (now["node_count"] == count or failed(now)))

    async def _settled(self, moved: Any) -> None:
        self.live = await self.wait.settled(moved)
        if failed(self.live):
            raise PluginError(f"{self.wait.what}: {reason(self.live)}; the next up tries again")


def split(id: str) -> tuple[str, str]:
    """Cluster and group of an id; both may be names on import. `PluginError` for any other form."""
    cluster, _, group = id.partition("/")
    if not cluster or not group or "/" in group:
        raise PluginError(f"node group: id {id!r} is not CLUSTER/GROUP")
    return cluster, group
