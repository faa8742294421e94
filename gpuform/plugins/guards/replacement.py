"""``gpuform:openstack:ReplacementGuard``: refuses what only a replacement can change, unless allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.guards.region import PATH, RECORD, Implied, implied, placed
from gpuform.plugins.handler import Call, Checked, Diffed, PluginError, Properties, ReadResult
from gpuform.plugins.properties import has_unknown, reveal

KNOWN = ("what", "at", "fixed", "template", "allow", "allowReplace", "lost", "cloud")
NOTHING = "nothing"
UNSET = "unset"
_COMPARED = ("fixed", "template")
_OPTIONAL = ("template", "at", "cloud")
_ALLOWED = "allowedFrom"
_PERHAPS_SAME = "; if the credentials imply that region already, leave it out, and nothing changes"

Found = Mapping[str, tuple[Any, Any]]


class ReplacementGuard:
    """Compares what is fixed with the last run's, in the engine's check: a preview fails as an update does.

    The diff is always empty, for a guard changes nothing itself; the engine keeps the new inputs all the
    same. Its one output is what it guards, which stays, so no refresh finds a difference either.
    """

    def __init__(self, region: Implied = implied) -> None:
        """``region`` says which one a cloud's credentials imply; another is for tests."""
        self._region = region

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        """Refuse every fixed value that is not as in ``olds``; a new guard has nothing to compare.

        Two things are written down beside the inputs: where the cluster is, and what an allowed replacement
        was from, for whether it came about is not seen from here.
        """
        inputs = {key: value for key, value in news.items() if value is not None}
        unknown = [
            (key, f"is no input; the inputs are {', '.join(KNOWN)}") for key in inputs if key not in KNOWN
        ]
        missing = [(key, "is missing") for key in KNOWN if key not in inputs and key not in _OPTIONAL]
        if unknown or missing:
            return Checked(inputs, [*unknown, *missing])
        before, after = reveal(olds), reveal(inputs)
        if "cloud" in after:
            where = placed(before, after, self._region)
            if where.wrong:
                return Checked(inputs, [("", where.wrong)])
            before = {**before, "fixed": where.among(before.get("fixed"), where.was)}
            after = {**after, "fixed": where.among(after.get("fixed"), where.now)}
            inputs |= {RECORD: where.now} if where.now else {}
        found = changes(before, after)
        if not found:
            return Checked(inputs)
        told = told_of(before, after, found)
        if not after["allowReplace"]:
            return Checked(inputs, [("", f"{told}; {_remedy(before, after, found)}")])
        await call.warn(f"{told}; {after['allow']} lets it happen")
        return Checked({**inputs, _ALLOWED: _froms(before, found)})

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


def told_of(before: Mapping[str, Any], after: Mapping[str, Any], found: Found) -> str:
    """What cannot be done in place, and what the last run says would be lost.

    Of what an allowed replacement was from and is to be again, only that it may be lost: one that was
    interrupted before it began leaves nothing to replace.
    """
    at, back = after.get("at") or "", _put_back(before, found)
    facts = [
        f"{at}{path}: {_said(was)} was allowed to replace {_said(is_)}, and may not have come about"
        if path in back
        else f"{at}{path}: {_said(was)} cannot become {_said(is_)} in place"
        for path, (was, is_) in found.items()
    ]
    lost = ", ".join(str(one) for one in before.get("lost") or ()) or NOTHING
    would = "if it has, " if len(back) == len(found) else ""
    return f"{', '.join(facts)}; {would}{after['what']} would be replaced, and lost would be: {lost}"


def _remedy(before: Mapping[str, Any], after: Mapping[str, Any], found: Found) -> str:
    if len(_put_back(before, found)) == len(found):
        return f"set {after['allow']}: true, and the preview shows whether it has; or declare that again"
    unsaid = PATH in found and found[PATH][0] is None
    return f"set {after['allow']}: true for one run, or put it back" + (_PERHAPS_SAME if unsaid else "")


def _put_back(before: Mapping[str, Any], found: Found) -> list[str]:
    """The paths that are to be again what an allowed replacement was from."""
    allowed = before.get(_ALLOWED) or {}
    return [path for path, (_, is_) in found.items() if _said(is_) in allowed.get(path, ())]


def _froms(before: Mapping[str, Any], found: Found) -> dict[str, list[str]]:
    """What allowed replacements were from, by path, oldest first, until a run finds nothing changed."""
    earlier = before.get(_ALLOWED) or {}
    now = {path: [*earlier.get(path, ()), _said(was)] for path, (was, _) in found.items()}
    return {**earlier, **now}


def _said(value: Any) -> str:
    if value is None:
        return UNSET
    return json.dumps(value)
