"""``gpuform:openstack:ReplacementGuard``: refuses changes that need a replacement, unless allowed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.provider.guards.guard import Guard, names
from gpuform.provider.handler import Call, Checked, Properties
from gpuform.provider.properties import has_unknown, reveal

PATH = "cluster.region"
RECORD = "region"
"""The guard's own input in which its check records the cluster's region."""

_OFFLINE = "RegionOne"
"""As in toolchain/pulumi-openstack/offline."""

Implied = Callable[[str], str]
KNOWN = ("what", "at", "fixed", "template", "allow", "allowReplace", "lost", "cloud", "acknowledged")
NOTHING = "nothing"
UNSET = "unset"
_COMPARED = ("fixed", "template")
_OPTIONAL = ("template", "at", "cloud", "acknowledged")
_ALLOWED = "allowedFrom"
_PERHAPS_SAME = "; if the credentials imply that region already, leave it out, and nothing changes"

Found = Mapping[str, tuple[Any, Any]]


def implied(cloud: str) -> str:
    """The region of an entry of clouds.yaml, or of the OS_ variables for ``""``; empty if unset.

    Reads files only, sends no request. In offline runs it is the region of their made-up cloud.
    """
    if os.environ.get("GPUFORM_OFFLINE"):
        return _OFFLINE
    from gpuform.clients.openstack.cloud import connect

    try:
        return connect(cloud or None).region
    except (Failure, InputError):
        return ""


@dataclass(frozen=True)
class Placed:
    """The region of the cluster (``was``), and the one it is to have (``now``); empty if unknown.

    ``wrong`` says why the region must be declared.
    """

    was: str
    now: str
    wrong: str = ""

    def among(self, fixed: Any, region: str) -> Any:
        """``fixed`` with ``region`` as the cluster's region."""
        return {**fixed, PATH: region} if region and isinstance(fixed, Mapping) else fixed


def placed(before: Mapping[str, Any], after: Mapping[str, Any], ask: Implied) -> Placed:
    """Compare the last run's region with this one's; ``ask`` is `implied`, called only if needed.

    Declaring the region that the credentials imply is not a change. Leaving it out is not one either: the
    provider keeps a cluster's region if its program names none.
    """
    cloud, declared = str(after.get("cloud") or ""), _declared(after)
    was = str(before.get(RECORD) or _declared(before))
    if declared:
        if before and not was:
            was = ask(str(before.get("cloud", cloud)))
        return Placed(was, declared)
    same_way = before.get("cloud", cloud) == cloud and not _declared(before)
    if was and same_way:
        return Placed(was, was)
    leads = ask(cloud)
    if was and leads and leads != was:
        fact = f'{PATH}: the cluster is in "{was}", and without it new node groups would go to "{leads}"'
        return Placed(was, was, f'{fact}, which the credentials imply; write region: "{was}"')
    return Placed(was or leads, was or leads)


def _declared(inputs: Mapping[str, Any]) -> str:
    fixed = inputs.get("fixed")
    found = fixed.get(PATH) if isinstance(fixed, Mapping) else None
    return found if isinstance(found, str) else ""


class ReplacementGuard(Guard):
    """Compares fixed values with the last run's, in check, so that a preview fails as an update does."""

    def __init__(self, region: Implied = implied) -> None:
        self._region = region

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": inputs["what"]}

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        """Refuse every fixed value that differs from ``olds``; a new guard has nothing to compare.

        Records two things beside the inputs: the cluster's region, and the old values of an allowed
        replacement, because the guard cannot see whether the replacement took place.
        """
        inputs = {key: value for key, value in news.items() if value is not None}
        unknown = [
            (key, f"is not an input; the inputs are {', '.join(KNOWN)}") for key in inputs if key not in KNOWN
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
        told, name = told_of(before, after, found), _name(before)
        by_name = name in names(after)
        if not after["allowReplace"] and not by_name:
            return Checked(inputs, [("", f"{told}; {_remedy(before, after, found)}")])
        await call.warn(f"{told}; {'acknowledged as ' + name if by_name else after['allow'] + ' allows it'}")
        return Checked({**inputs, _ALLOWED: _froms(before, found)})


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new value of each fixed value that differs, by path; None if unset.

    A new guard and a value that is not known yet are not changes. ``template`` is compared only if neither
    run can apply a template by an upgrade.
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
    """Message with what cannot be done in place, and what the last run says would be lost.

    If a value returns to the old value of an allowed replacement, it says only that this may be lost: a
    replacement that was interrupted before it began leaves nothing to replace.
    """
    at, back = after.get("at") or "", _put_back(before, found)
    facts = [
        f"{at}{path}: the replacement of {said(is_)} by {said(was)} was allowed, and may not have taken place"
        if path in back
        else f"{at}{path}: {said(was)} cannot become {said(is_)} in place"
        for path, (was, is_) in found.items()
    ]
    lost = ", ".join(str(one) for one in before.get("lost") or ()) or NOTHING
    would = "if it has, " if len(back) == len(found) else ""
    return f"{', '.join(facts)}; {would}{after['what']} would be replaced, which loses: {lost}"


def _name(before: Mapping[str, Any]) -> str:
    """The name that acknowledges the replacement: the old cluster's, or the pool's."""
    named = (before.get("fixed") or {}).get("name")
    return str(named or before["what"].rpartition(" ")[2])


def _remedy(before: Mapping[str, Any], after: Mapping[str, Any], found: Found) -> str:
    if len(_put_back(before, found)) == len(found):
        return f"set {after['allow']}: true, and the preview shows whether it has; or restore the last value"
    unsaid = PATH in found and found[PATH][0] is None
    return f"set {after['allow']}: true for one run, or undo the change" + (_PERHAPS_SAME if unsaid else "")


def _put_back(before: Mapping[str, Any], found: Found) -> list[str]:
    """Paths of values that return to the old value of an allowed replacement."""
    allowed = before.get(_ALLOWED) or {}
    return [path for path, (_, is_) in found.items() if said(is_) in allowed.get(path, ())]


def _froms(before: Mapping[str, Any], found: Found) -> dict[str, list[str]]:
    """Old values of allowed replacements by path, oldest first, until a run finds no change."""
    earlier = before.get(_ALLOWED) or {}
    now = {path: [*earlier.get(path, ()), said(was)] for path, (was, _) in found.items()}
    return {**earlier, **now}


def said(value: Any) -> str:
    if value is None:
        return UNSET
    return json.dumps(value)
