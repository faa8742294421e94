"""A cluster template at Magnum."""

from __future__ import annotations

from typing import Any

from gpuform.plugins.handler import Call, PluginError, Properties, ReadResult
from gpuform.plugins.openstack import begun
from gpuform.plugins.openstack.api import ApiError, Live, Magnum
from gpuform.plugins.openstack.projects import require_own
from gpuform.plugins.openstack.resource import MagnumResource
from gpuform.plugins.openstack.table import CLUSTER_TEMPLATE, request
from gpuform.plugins.properties import reveal

_PORTS = range(1024, 65536)


class ClusterTemplates(MagnumResource):
    """A template is only a record: it is there at once, and nothing is waited for."""

    table = CLUSTER_TEMPLATE
    noun = "cluster template"

    def refused(self, inputs: Properties) -> list[tuple[str, str]]:
        """A port that Magnum does not take."""
        port = inputs.get("apiserverPort")
        wrong = isinstance(port, int) and port not in _PORTS
        return [("apiserverPort", f"must be {_PORTS.start} to {_PORTS.stop - 1}")] if wrong else []

    async def look(self, magnum: Magnum, id: str) -> Live | None:
        """The template of a uuid."""
        return await magnum.template(id)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Make it."""
        if call.preview:
            return "", self.planned(news)
        magnum, inputs = self.magnum(news), reveal(news)

        async def make() -> str:
            return await magnum.create_template(request(CLUSTER_TEMPLATE, inputs))

        uuid, _ = await self.begin(call, magnum, inputs, magnum.template, make)
        return uuid, self.outputs(magnum, await self._there(magnum, uuid), news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """Look at it."""
        magnum = self.magnum(olds, inputs)
        live = await magnum.template(id)
        if live is None:
            await self._own(magnum, id, olds)
            return None
        found = self.outputs(magnum, live, inputs)
        return ReadResult(str(live["uuid"]), found, self.refreshed(found, inputs, olds))

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Send what the program changed; Magnum takes it only while no cluster uses the template."""
        if call.preview:
            return self.planned(news, olds)
        magnum = self.magnum(olds, news)
        patch = _patch(reveal(old_inputs), reveal(news))
        if patch:
            try:
                await magnum.patch_template(id, patch)
            except ApiError as error:
                if "referenced" not in str(error):
                    raise
                raise PluginError(
                    f"{self.noun} {reveal(news)['name']}: clusters use it, and Magnum changes none that is "
                    "in use; declare another template beside it, and move the cluster to that"
                ) from None
        return self.outputs(magnum, await self._there(magnum, id), news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Remove it."""
        magnum = self.magnum(olds, old_inputs)
        if await magnum.template(id) is None:
            await self._own(magnum, id, olds)
        else:
            await magnum.delete_template(id)
        begun.forget(call.urn)

    async def _own(self, magnum: Magnum, id: str, olds: Properties) -> None:
        await require_own(magnum, f"{self.noun} {reveal(olds).get('name', id)}", olds)

    async def _there(self, magnum: Magnum, uuid: str) -> Live:
        live = await magnum.template(uuid)
        if live is None:
            raise PluginError(f"{self.noun} {uuid}: it is gone; 'pulumi refresh' takes it out of the state")
        return live


def _patch(before: Properties, now: Properties) -> list[dict[str, Any]]:
    """Each changed property as the official provider sends it: flags and labels as text, empty ones away."""
    patch: list[dict[str, Any]] = []
    for name, field in CLUSTER_TEMPLATE.items():
        value = now.get(name)
        if not field.given or value == before.get(name) or (value is None and field.computed):
            continue
        if field.kind == "flag":
            value = str(bool(value)).lower()
        elif field.kind == "map":
            value = "{" + ",".join(f"'{key}':'{item}'" for key, item in (value or {}).items()) + "}"
        if value in (None, "", 0):
            patch.append({"op": "remove", "path": f"/{field.api}"})
        else:
            patch.append({"op": "replace", "path": f"/{field.api}", "value": value})
    return patch
