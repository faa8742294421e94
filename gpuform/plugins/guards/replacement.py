"""``gpuform:openstack:ReplacementGuard``: refuses what only a replacement can change, unless allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.handler import Call, Checked, Diffed, PluginError, Properties, ReadResult
from gpuform.plugins.properties import has_unknown, reveal

KNOWN = ("what", "at", "fixed", "template", "allow", "allowReplace", "lost")
NOTHING = "nothing"
UNSET = "unset"
_COMPARED = ("fixed", "template")


class ReplacementGuard:
    """Compares what is fixed with the last run's, in the engine's check: a preview fails as an update does.

    The diff is always empty, for a guard changes nothing itself; the engine keeps the new inputs all the
    same. Its one output is what it guards, which stays, so no refresh finds a difference either.
    """

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        """Refuse every fixed value that is not as in ``olds``; a new guard has nothing to compare."""
        inputs = {key: value for key, value in news.items() if value is not None}
        unknown = [
            (key, f"is no input; the inputs are {', '.join(KNOWN)}") for key in inputs if key not in KNOWN
        ]
        missing = [
            (key, "is missing") for key in KNOWN if key not in inputs and key not in ("template", "at")
        ]
        if unknown or missing:
            return Checked(inputs, [*unknown, *missing])
        before, after = reveal(olds), reveal(inputs)
        found = changes(before, after)
        if not found:
            return Checked(inputs)
        told = told_of(before, after, found)
        if not after["allowReplace"]:
            return Checked(inputs, [("", f"{told}; set {after['allow']}: true for one run, or put it back")])
        await call.warn(f"{told}; {after['allow']} lets it happen")
        return Checked(inputs)

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Never a difference."""
        return Diffed()

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Make nothing; from now on its inputs are what the next run is compared with."""
        return "" if call.preview else call.name, _outputs(news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """There is nothing to look at."""
        if not inputs:
            raise PluginError(f"{id}: a ReplacementGuard cannot be imported; declare what it guards")
        return ReadResult(id, _outputs(inputs), inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Change nothing."""
        return _outputs(news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete nothing."""


def _outputs(inputs: Properties) -> Properties:
    return {"what": inputs["what"]}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """From and to of each fixed value that differs, by path; None for one that is not set.

    Nothing before, or not known yet, is no change. What an upgrade could do is compared only where neither
    run had an upgrade for it.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for key in _COMPARED:
        old, new = before.get(key), after.get(key)
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            continue
        for path in sorted({*old, *new}):
            was, is_ = old.get(path), new.get(path)
            if was != is_ and not has_unknown(is_):
                found[path] = (was, is_)
    return found


def told_of(before: Mapping[str, Any], after: Mapping[str, Any], found: Mapping[str, tuple[Any, Any]]) -> str:
    """What cannot be done in place, and what the last run says would be lost."""
    at = after.get("at") or ""
    facts = [
        f"{at}{path}: {_said(was)} cannot become {_said(is_)} in place" for path, (was, is_) in found.items()
    ]
    lost = ", ".join(str(one) for one in before.get("lost") or ()) or NOTHING
    return f"{', '.join(facts)}; {after['what']} would be replaced, and lost would be: {lost}"


def _said(value: Any) -> str:
    if value is None:
        return UNSET
    return json.dumps(value)
