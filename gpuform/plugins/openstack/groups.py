"""A node group of a cluster at Magnum."""

from __future__ import annotations

from typing import Any

from gpuform.plugins.handler import Call, PluginError, Properties
from gpuform.plugins.openstack.api import ApiError, Live, Magnum
from gpuform.plugins.openstack.bounds import outside
from gpuform.plugins.openstack.endings import failed
from gpuform.plugins.openstack.making import SlowResource
from gpuform.plugins.openstack.table import NODE_GROUP, request
from gpuform.plugins.openstack.waiting import Wait, mark, reason

_NOT_SENT = ("clusterId",)
_CONFLICTS = (400, 409)


class NodeGroups(SlowResource):
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

    async def start(self, call: Call, magnum: Magnum, inputs: Properties) -> tuple[str, bool]:
        """Ask for it in its cluster."""
        cluster = str(inputs["clusterId"])
        body = request(NODE_GROUP, {key: value for key, value in inputs.items() if key not in _NOT_SENT})
        if not inputs.get("mergeLabels"):
            body.pop("merge_labels", None)

        async def find(key: str) -> Live | None:
            return await magnum.group(cluster, key)

        async def make() -> str:
            return await magnum.create_group(cluster, body)

        uuid, taken = await self.begin(call, magnum, inputs, find, make)
        return f"{cluster}/{uuid}", taken

    async def change(
        self, wait: Wait, magnum: Magnum, id: str, live: Live, before: Properties, now: Properties
    ) -> Live:
        """Resize it and change its bounds."""
        return await _Change(wait, magnum, id, live).carry_out(before, now)

    async def end(self, magnum: Magnum, id: str) -> None:
        """Ask for its end."""
        await magnum.delete_group(*split(id))

    def found(self, id: str, live: Live) -> str:
        """With the uuid of the group; the cluster stays as it was named."""
        return f"{split(id)[0]}/{live['uuid']}"


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
