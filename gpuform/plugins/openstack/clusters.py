"""A cluster at Magnum."""

from __future__ import annotations

import time
from typing import Any

from gpuform.plugins.handler import Call, InitFailed, PluginError, Properties, ReadResult
from gpuform.plugins.openstack import begun
from gpuform.plugins.openstack.api import Live, Magnum
from gpuform.plugins.openstack.deleting import delete
from gpuform.plugins.openstack.endings import ended, failed, late_told
from gpuform.plugins.openstack.kubeconfig import kubeconfig, usable
from gpuform.plugins.openstack.making import finished
from gpuform.plugins.openstack.resource import CREATE_FAILED, UNFINISHED, MagnumResource, bound
from gpuform.plugins.openstack.table import CLUSTER, request
from gpuform.plugins.openstack.waiting import BEGINS_S, Gone, Late, Still, Wait, in_progress, mark, reason
from gpuform.plugins.properties import UNKNOWN, Secret, reveal

CREATE_S, UPDATE_S, DELETE_S = 3600.0, 1800.0, 1800.0
"""The official provider's own bounds (resource_openstack_containerinfra_cluster_v1.go, Timeouts)."""

_MARGIN_S = 300.0  # for Magnum to say so, after the time that it gives itself is over


class Clusters(MagnumResource):
    """The cluster with its masters and default workers; its other node groups are resources of their own."""

    table = CLUSTER
    noun = "cluster"

    async def look(self, magnum: Magnum, id: str) -> Live | None:
        """The cluster of a uuid."""
        return await magnum.cluster(id)

    def planned(self, inputs: Properties, olds: Properties | None = None) -> Properties:
        """Also the kubeconfig, which stays as it is where there is one."""
        return {"kubeconfig": Secret(UNKNOWN), **super().planned(inputs, olds)}

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Make it, wait, and have a certificate signed. What an interrupted run began is gone on with."""
        if call.preview:
            return "", self.planned(news)
        magnum, inputs = self.magnum(news), reveal(news)

        async def make() -> str:
            return await magnum.create_cluster(request(CLUSTER, inputs))

        while True:
            uuid, taken = await self.begin(call, magnum, inputs, magnum.cluster, make)
            try:
                return uuid, await self._finished(call, magnum, uuid, news, None)
            except InitFailed as failure:
                if not (taken and failure.properties.get(UNFINISHED) == CREATE_FAILED):
                    raise
                await call.info(f"{failure}; it is deleted, and made anew")
            await self._delete(call, magnum, uuid, inputs)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """Look at it; one that is not made, or failed to be, is reported as such, and kept."""
        magnum = self.magnum(inputs or olds)
        live = await magnum.cluster(id)
        if live is None:
            return None
        uuid = str(live["uuid"])
        status = str(live.get("status"))
        if in_progress(live) and not status.startswith("UPDATE"):
            raise self.init_failed(magnum, uuid, live, inputs, f"{self._what(live)}: {status}")
        if status == CREATE_FAILED:
            raise self.init_failed(magnum, uuid, live, inputs, f"{self._what(live)}: {reason(live)}")
        found = await self._whole(magnum, live, inputs, olds)
        return ReadResult(uuid, found, self.refreshed(found, inputs, olds))

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Upgrade to another template, resize the default workers; or wait on for what was not finished."""
        if call.preview:
            return self.planned(news, olds)
        magnum = self.magnum(news)
        if reveal(olds).get(UNFINISHED):
            olds = await self._finished(call, magnum, id, news, olds)
        wait = Wait(
            call, f"cluster {reveal(news)['name']}", lambda: magnum.cluster(id), bound(call, UPDATE_S)
        )
        before, now = reveal(old_inputs), reveal(news)
        try:
            live = await wait.settled()
            if str(live["status"]).startswith(("CREATE_FAILED", "DELETE")):
                raise PluginError(f"{wait.what}: {reason(live)}; nothing can be changed in it")
            if now["clusterTemplateId"] != before.get("clusterTemplateId"):
                live = await self._upgrade(wait, magnum, live, str(now["clusterTemplateId"]))
            if now["nodeCount"] != before.get("nodeCount", now["nodeCount"]):
                live = await self._resize(wait, magnum, live, int(now["nodeCount"]))
        except Late as late:
            raise PluginError(late_told(wait, late)) from None
        except (Gone, Still) as end:
            raise PluginError(ended(wait, end)) from None
        return await self._whole(magnum, live, news, olds)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete it with all its groups, and wait until it is gone."""
        inputs = reveal(old_inputs or olds)
        await self._delete(call, self.magnum(inputs), id, inputs)
        begun.forget(call.urn)

    async def _delete(self, call: Call, magnum: Magnum, id: str, inputs: Properties) -> None:
        wait = Wait(
            call, f"cluster {inputs.get('name', id)}", lambda: magnum.cluster(id), bound(call, DELETE_S)
        )
        await delete(wait, magnum, id, lambda: magnum.delete_cluster(id))

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

    async def _finished(
        self, call: Call, magnum: Magnum, uuid: str, news: Properties, olds: Properties | None
    ) -> Properties:
        """Wait until it is made, for as long as Magnum gives itself and a little longer; the outputs."""
        inputs = reveal(news)
        own_s = float(inputs.get("createTimeout") or 0) * 60 + _MARGIN_S
        wait = Wait(
            call,
            f"cluster {inputs['name']}",
            lambda: magnum.cluster(uuid),
            bound(call, max(CREATE_S, own_s)),
        )

        async def whole(live: Live) -> Properties:
            return await self._whole(magnum, live, news, olds or {})

        return await finished(self, wait, magnum, uuid, news, whole)

    async def _whole(self, magnum: Magnum, live: Live, inputs: Properties, olds: Properties) -> Properties:
        """The outputs of a cluster that is there, its kubeconfig among them."""
        found = self.outputs(magnum, live, inputs)
        worker = await _default_worker(magnum, live)
        found["nodeCount"] = int(worker.get("node_count") or 0)
        known: Any = reveal(olds).get("kubeconfig")
        host = str(live.get("api_address") or "")
        if not usable(known, host):
            known = await kubeconfig(magnum, str(live["uuid"]), str(live["name"]), host)
        return {**found, "kubeconfig": Secret(known)}

    def _what(self, live: Live) -> str:
        return f"{self.noun} {live.get('name')}"


async def _default_worker(magnum: Magnum, live: Live) -> Live:
    """The group that a cluster's own node count is about: the cluster's counts all of its groups."""
    for group in await magnum.groups(str(live["uuid"])):
        if group.get("is_default") and group.get("role") != "master":
            return group
    return {"node_count": live.get("node_count"), "status": live.get("status")}
