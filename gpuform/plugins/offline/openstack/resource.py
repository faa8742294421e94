"""Magnum's types by one handler: what is made is remembered by the engine's state alone."""

from __future__ import annotations

from typing import Any

from gpuform.plugins.handler import Call, Change, Checked, Diffed, PluginError, Properties, ReadResult
from gpuform.plugins.offline import differences
from gpuform.plugins.offline.openstack import outputs
from gpuform.plugins.offline.openstack.row import Row
from gpuform.plugins.properties import reveal


class OfflineResource:
    """One type. Nothing is created at Magnum, and nothing is asked of it: reading answers from the state."""

    def __init__(self, row: Row, region: str) -> None:
        """Behave as ``row`` says, in the provider's region."""
        self.row = row
        self.region = region

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        """Fill in the provider's defaults and a name; refuse what SDK and Magnum do not take."""
        inputs = {key: value for key, value in news.items() if value is not None}
        for name, value in self.row.defaults.items():
            inputs.setdefault(name, value)
        if "name" not in inputs:
            inputs["name"] = olds.get("name") or outputs.made_up_name(self.row, call.urn, call.name, inputs)
        return Checked(inputs, list(self.row.failures(reveal(inputs))))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Compare the inputs; what Magnum fills in itself stays where the program says it no more."""
        old, new = reveal(old_inputs), reveal(news)
        changed = {
            path: change
            for path, change in differences.changes(old, new).items()
            if not (change is Change.DELETE and path in self.row.filled)
        }
        if "region" in changed and new.get("region") == reveal(olds).get("region"):
            del changed["region"]  # where it is already, which the program says now
        replaces = differences.replacing(self.row, changed)
        return Diffed(
            changed, replaces, delete_before_replace=bool(replaces) and self._clashes(call, old, new)
        )

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Answer as Magnum would once it is done; in a preview with what is known without it."""
        if call.preview:
            return "", outputs.planned(self.row, news)
        return outputs.computed(self.row, self.region, call.urn, news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """What the state says; what it has without outputs is put there as found: those are made up now."""
        if not inputs:
            raise PluginError(f"{call.type} {id}: offline there is nothing at Magnum that could be read")
        if not olds:
            id, olds = outputs.computed(self.row, self.region, call.urn, inputs, id)
        return ReadResult(id, olds, inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """The new inputs over what was there; the cluster stays where it is."""
        made: Properties = outputs.planned(self.row, news)
        if not call.preview:
            made = outputs.computed(self.row, self.region, call.urn, news, id)[1]
        kept: dict[str, Any] = {key: olds[key] for key in made if key in olds and key not in news}
        return {**made, **kept}

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Forget it."""

    def _clashes(self, call: Call, old: Properties, new: Properties) -> bool:
        """Whether old and new object would have the same name, which the program has chosen."""
        made_up = outputs.made_up_name(self.row, call.urn, call.name, {})
        return old.get("name") == new.get("name") and str(new.get("name"))[:-7] != made_up[:-7]
