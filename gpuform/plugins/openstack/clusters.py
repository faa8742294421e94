"""A cluster at Magnum."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from gpuform.plugins.handler import Call, Change, Diffed, PluginError, Properties
from gpuform.plugins.openstack.api import ApiError, Live, Magnum
from gpuform.plugins.openstack.endings import failed
from gpuform.plugins.openstack.kubeconfig import kubeconfig, usable
from gpuform.plugins.openstack.making import CREATE_S, SlowResource
from gpuform.plugins.openstack.table import CLUSTER, request
from gpuform.plugins.openstack.waiting import BEGINS_S, Wait, in_progress, mark, reason
from gpuform.plugins.properties import UNKNOWN, Secret, reveal

_MARGIN_S = 300.0  # for Magnum to say so, after the time that it gives itself is over


class Clusters(SlowResource):
    """The cluster with its masters and default workers; its other node groups are resources of their own."""

    table = CLUSTER
    noun = "cluster"

    async def look(self, magnum: Magnum, id: str) -> Live | None:
        """The cluster of a uuid."""
        return await magnum.cluster(id)

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Also an update for a kubeconfig whose certificate ends soon: an unchanged program renews it."""
        found = await super().diff(call, id, old_inputs, olds, news)
        known = reveal(olds).get("kubeconfig")
        if not found.replaces and known and not usable(known, str(known.get("host"))):
            return replace(found, changes={**found.changes, "kubeconfig": Change.UPDATE})
        return found

    def planned(self, inputs: Properties, olds: Properties | None = None) -> Properties:
        """Also the kubeconfig, which stays as it is where there is one."""
        return {"kubeconfig": Secret(UNKNOWN), **super().planned(inputs, olds)}

    async def start(self, call: Call, magnum: Magnum, inputs: Properties) -> tuple[str, bool]:
        """Ask for it with its masters and default workers."""

        async def make() -> str:
            return await magnum.create_cluster(request(CLUSTER, inputs))

        return await self.begin(call, magnum, inputs, magnum.cluster, make)

    async def change(
        self, wait: Wait, magnum: Magnum, id: str, live: Live, before: Properties, now: Properties
    ) -> Live:
        """Upgrade to another template, resize the default workers."""
        if now["clusterTemplateId"] != before.get("clusterTemplateId"):
            live = await self._upgrade(wait, magnum, live, str(now["clusterTemplateId"]))
        if now["nodeCount"] != before.get("nodeCount", now["nodeCount"]):
            live = await self._resize(wait, magnum, live, int(now["nodeCount"]))
        return live

    async def end(self, magnum: Magnum, id: str) -> None:
        """Ask for its end, and that of all its groups."""
        await magnum.delete_cluster(id)

    def found(self, id: str, live: Live) -> str:
        """Its uuid."""
        return str(live["uuid"])

    def making_s(self, inputs: Properties) -> float:
        """As long as Magnum gives itself, and a little longer."""
        return max(CREATE_S, float(inputs.get("createTimeout") or 0) * 60 + _MARGIN_S)

    async def _upgrade(self, wait: Wait, magnum: Magnum, live: Live, template: str) -> Live:
        """Onto another template, which the program may name by uuid or by name."""
        wanted = await magnum.template(template)
        if wanted is None:
            raise PluginError(f"{wait.what}: there is no cluster template {template}")
        uuid, before = wanted["uuid"], mark(live)
        if live["cluster_template_id"] == uuid and live["status"] != "UPDATE_FAILED":
            return live
        await magnum.upgrade(str(live["uuid"]), uuid)

        return self._succeeded(wait, await wait.settled(lambda now: mark(now) != before))

    async def _resize(self, wait: Wait, magnum: Magnum, live: Live, count: int) -> Live:
        """As many default workers as wanted; one that an earlier run has asked for is not asked for again."""
        worker = await _default_worker(magnum, live)
        if worker.get("node_count") == count and live["status"] != "UPDATE_FAILED":
            return live
        before = mark({**live, "node_count": worker.get("node_count")})
        await magnum.resize(str(live["uuid"]), count)
        begins = time.monotonic() + BEGINS_S

        async def both() -> Live | None:
            """The cluster, and its default workers: of these Magnum says first that it is at work."""
            now = await magnum.cluster(str(live["uuid"]))
            group = await _default_worker(magnum, now) if now else {}
            early = time.monotonic() < begins
            busy = early and now is not None and in_progress(group) and not in_progress(now)
            return now and {
                **now,
                "node_count": group.get("node_count"),
                **({"status": group["status"]} if busy else {}),
            }

        def moved(now: Live) -> bool:
            return mark(now) != before and (now["node_count"] == count or failed(now))

        resizing = Wait(wait.call, wait.what, both, wait.bound_s)
        return self._succeeded(wait, await resizing.settled(moved))

    def _succeeded(self, wait: Wait, live: Live) -> Live:
        if failed(live):
            raise PluginError(f"{wait.what}: {reason(live)}; the next up tries again")
        return live

    async def seen(self, magnum: Magnum, live: Live, inputs: Properties, olds: Properties) -> Properties:
        """The same, with the authority of now: Magnum may have rotated it."""
        authority = await _authority(magnum, str(live["uuid"]))
        return await self.whole(magnum, live, inputs, olds, authority)

    async def whole(
        self, magnum: Magnum, live: Live, inputs: Properties, olds: Properties, authority: str = ""
    ) -> Properties:
        """The outputs of a cluster that is there, its kubeconfig among them.

        That of before is kept, unless it ends soon, is for another address, or, where ``authority`` says
        which one there is now, trusts another.
        """
        found = self.outputs(magnum, live, inputs)
        worker = await _default_worker(magnum, live)
        found["nodeCount"] = int(worker.get("node_count") or 0)
        known: Any = reveal(olds).get("kubeconfig")
        host = str(live.get("api_address") or "")
        if not usable(known, host, authority):
            known = await kubeconfig(magnum, str(live["uuid"]), str(live["name"]), host)
        return {**found, "kubeconfig": Secret(known)}


async def _authority(magnum: Magnum, uuid: str) -> str:
    """The certificate of a cluster's authority as of now; empty where that may not be asked."""
    try:
        return await magnum.authority(uuid)
    except ApiError:
        return ""


async def _default_worker(magnum: Magnum, live: Live) -> Live:
    """The group that a cluster's own node count is about: the cluster's counts all of its groups."""
    for group in await magnum.groups(str(live["uuid"])):
        if group.get("is_default") and group.get("role") != "master":
            return group
    return {"node_count": live.get("node_count"), "status": live.get("status")}
