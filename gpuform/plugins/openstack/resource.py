"""What the three types have in common: their inputs, what a change of them means, and how one is begun."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping

from gpuform.plugins.handler import Call, Change, Checked, Diffed, InitFailed, PluginError, Properties
from gpuform.plugins.offline.differences import changes
from gpuform.plugins.openstack import begun
from gpuform.plugins.openstack.api import ApiError, Live, Magnum
from gpuform.plugins.openstack.clouds import Clouds
from gpuform.plugins.openstack.table import Table, shown
from gpuform.plugins.openstack.waiting import BEGINS_S
from gpuform.plugins.properties import UNKNOWN, reveal

UNFINISHED = "__unfinished"
"""In the state of what is not made yet, or failed to be: Magnum's status when that was last seen. The engine
shows nothing that begins so."""

CREATE_FAILED = "CREATE_FAILED"


class MagnumResource:
    """One type: ``table`` has its properties, ``noun`` what it is called."""

    table: Table
    noun: str

    def __init__(self, clouds: Clouds) -> None:
        """Work on the provider's clouds."""
        self.clouds = clouds

    def magnum(self, *known: Properties) -> Magnum:
        """Where the resource is, or will be: the region that the first of ``known`` names.

        Of a resource that is there, its outputs come first, as with the official provider: else one that
        moves to another region would be looked for there, and its deletion find nothing to delete.
        """
        named = (str(region) for one in known if (region := reveal(one).get("region")))
        return self.clouds.of(next(named, None))

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        """Fill in defaults and a name; what nobody knows is refused."""
        inputs = {key: value for key, value in news.items() if value is not None}
        for name, field in self.table.items():
            default = os.environ.get(field.variable) if field.variable else field.default
            if name not in inputs and default not in (None, ""):
                inputs[name] = default
        if "name" not in inputs:
            inputs["name"] = olds.get("name") or _made_up(call)
        given = sorted(name for name, field in self.table.items() if field.given)
        failures = [
            (name, f"unknown property; known are {', '.join([*given, 'region'])}")
            for name in inputs
            if name not in (*given, "region") and not name.startswith("__")
        ]
        failures += [
            (name, "is required" + (f" (or {field.variable})" if field.variable else ""))
            for name, field in self.table.items()
            if field.required and name not in inputs
        ]
        return Checked(inputs, [*failures, *self.refused(reveal(inputs))])

    def refused(self, inputs: Properties) -> list[tuple[str, str]]:
        """What the type itself does not take."""
        return []

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Compare what the program said with what it says; Magnum's own additions are no difference.

        Asks Magnum only about what failed, or was not finished, when last seen.
        """
        begun.had(call.urn, id)
        old, new = reveal(old_inputs), reveal(news)
        changed = {
            path: change
            for path, change in changes(old, new).items()
            if not (change is Change.DELETE and self._filled_in(_top(path)) and _top(path) == path)
        }
        if "region" in changed and new.get("region") == reveal(olds).get("region"):
            del changed["region"]  # where it is already, which the program says now
        replaces = [path for path in changed if self._fixed(_top(path))]
        if reveal(olds).get(UNFINISHED):
            changed[UNFINISHED] = Change.UPDATE
            if await self.failed(id, olds):
                replaces.append(UNFINISHED)
        same = new.get("name") == old.get("name")
        return Diffed(changed, replaces, delete_before_replace=bool(replaces) and same)

    def _fixed(self, name: str) -> bool:
        return name == "region" or (name in self.table and self.table[name].fixed)

    def _filled_in(self, name: str) -> bool:
        return name == "region" or (name in self.table and self.table[name].computed)

    async def failed(self, id: str, olds: Properties) -> bool:
        """Whether making it has failed for good, as Magnum says now."""
        live = await self.look(self.magnum(olds), id)
        return live is not None and live.get("status") == CREATE_FAILED

    async def look(self, magnum: Magnum, id: str) -> Live | None:
        """The live thing; types give it."""
        raise NotImplementedError

    def planned(self, inputs: Properties, olds: Properties | None = None) -> Properties:
        """The outputs as far as a preview knows them."""
        known = {key: value for key, value in (olds or {}).items() if key != UNFINISHED}
        return {**{name: UNKNOWN for name in (*self.table, "region")}, **known, **inputs}

    def outputs(self, magnum: Magnum, live: Live, inputs: Properties) -> Properties:
        """Magnum's answer as the official provider shows it."""
        found = shown(self.table, live)
        declared = reveal(inputs)
        if "mergeLabels" in self.table:
            found["mergeLabels"] = bool(declared.get("mergeLabels", False))
            if found["mergeLabels"]:
                found["labels"] = _merged(live, declared.get("labels") or {})
        found["region"] = declared.get("region") or magnum.cloud.region
        return found

    def unfinished(self, magnum: Magnum, live: Live | None, inputs: Properties) -> Properties:
        """The outputs of what is not made yet."""
        found = self.outputs(magnum, live, inputs) if live else {}
        status = (live or {}).get("status") or "CREATE_IN_PROGRESS"
        return {"region": magnum.cloud.region, **reveal(inputs), **found, UNFINISHED: status}

    def refreshed(self, found: Properties, inputs: Properties, olds: Properties) -> Properties:
        """The inputs a program would need for what is there; `found` are the outputs of now.

        On import all that Magnum has a value for. Later only what the program declares, and of that only what
        has changed since it was last seen: Magnum resolves names, and adds labels of its own.
        """
        declared, seen = reveal(inputs), reveal(olds)
        if not declared:
            given = [name for name, field in self.table.items() if field.given]
            return {name: found[name] for name in given if found.get(name) not in (None, "", 0, {}, [])}
        fresh = dict(inputs)
        for name in declared:
            if name not in found or name in ("mergeLabels", "region"):
                continue
            if name == "labels":
                fresh[name] = {key: found[name][key] for key in declared[name] if key in found[name]}
            elif found[name] != seen.get(name, declared[name]):
                fresh[name] = found[name]
        return fresh

    async def begin(
        self,
        call: Call,
        magnum: Magnum,
        inputs: Properties,
        find: Callable[[str], Awaitable[Live | None]],
        make: Callable[[], Awaitable[str]],
    ) -> tuple[str, bool]:
        """Ask Magnum for the thing unless an interrupted run has; its uuid, and whether it was taken over.

        Raises `PluginError` where one of that name is there and is not ours, or was asked for otherwise: the
        engine will write down that it is as in ``inputs``, which have no secrets in wrappers. See `begun`.
        """
        name = str(inputs["name"])
        noted = begun.note(call.urn)
        if noted is not None and noted.name == name:
            found = await self._begun_before(call, magnum, noted, find)
            if found is not None:
                begun.answered(noted, str(found["uuid"]))
                if found.get("status") != CREATE_FAILED and (other := noted.otherwise(inputs)):
                    raise self.begun_otherwise(name, found, other)
                await call.info(
                    f"{self.noun} {name}: goes on with {found['uuid']}, which an interrupted run had begun"
                )
                return str(found["uuid"]), True
        begun.forget(call.urn)
        there = await find(name)
        if there is not None:
            raise self.clash(name, there)
        noted = begun.begin(call.urn, inputs)
        try:
            uuid = await make()
        except ApiError as error:
            if error.refused:
                begun.forget(call.urn)
            raise
        begun.answered(noted, uuid)
        return uuid, False

    async def _begun_before(
        self, call: Call, magnum: Magnum, noted: begun.Note, find: Callable[[str], Awaitable[Live | None]]
    ) -> Live | None:
        """What an interrupted run asked for; Magnum may be a while until it shows it."""
        _, user = await magnum.me()
        while True:
            live = await find(noted.uuid or noted.name)
            if live is not None:
                return live if noted.made(live, user) else None
            if noted.age.total_seconds() > BEGINS_S:
                return None
            await call.status(f"{self.noun} {noted.name}: an interrupted run had begun it; looking for it")
            await call.sleep(1)

    def clash(self, name: str, there: Live) -> PluginError:
        """The error where the name is taken."""
        return PluginError(
            f"{self.noun} {name}: there is one of this name already, {there.get('uuid')} "
            f"({there.get('status') or 'made ' + str(there.get('created_at'))}), which this stack's state "
            "does not have, and nothing here says that this stack has made it; if it has, 'gpuform recover' "
            "finds it; else give another name, or delete it"
        )

    def begun_otherwise(self, name: str, there: Live, other: list[str]) -> PluginError:
        """The error where the program has changed since it was interrupted."""
        return PluginError(
            f"{self.noun} {name}: {there['uuid']} was begun by an interrupted run, and with another "
            f"{', another '.join(other)}; put it back for one run, which goes on with it; "
            "or delete it, and run again"
        )

    def init_failed(
        self, magnum: Magnum, id: str, live: Live | None, inputs: Properties, why: str
    ) -> InitFailed:
        """The error for a thing that is there, and is not what it should be: the engine keeps it."""
        return InitFailed(id, self.unfinished(magnum, live, inputs), [why], dict(inputs))


def bound(call: Call, default_s: float) -> float:
    """How long to wait: what the program says, else the official provider's default."""
    return call.timeout or default_s


def _merged(live: Live, declared: Mapping[str, str]) -> dict[str, str]:
    """Labels that are not just the parent's: as the official provider shows them where labels are merged."""
    labels = live.get("labels") or {}
    found = {**(live.get("labels_added") or {}), **(live.get("labels_skipped") or {})}
    found |= {key: labels.get(key) for key in live.get("labels_overridden") or {}}
    return {key: str(value) for key, value in {**dict(declared), **found}.items()}


def _top(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _made_up(call: Call) -> str:
    """A name where the program has none: its resource's, and seven digits, as the official provider's."""
    if call.autonaming:
        mode, proposed = call.autonaming
        if mode == "disable":
            raise PluginError(f"{call.name}: automatic names are switched off; set name")
        if proposed:
            return proposed
    digest = hashlib.sha256(call.random_seed + call.urn.encode()).hexdigest()[:7]
    return f"{call.name}-{digest}"
