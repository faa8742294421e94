"""``gpuform:openstack:ReplacementGuard``: refuses changes that need a replacement, unless allowed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.provider.guards.guard import Guard, acknowledged_names
from gpuform.provider.handler import Call, CheckResult, Properties, unknown_inputs
from gpuform.provider.properties import has_unknown, reveal

PATH = "cluster.region"
RECORD = "region"
"""The guard's own input in which its check records the cluster's region."""

_OFFLINE_REGION = "RegionOne"
"""As in toolchain/pulumi-openstack/offline."""

RegionLookup = Callable[[str], str]
INPUTS = ("what", "at", "fixed", "template", "allow", "allowReplace", "lost", "cloud", "acknowledged")
NOTHING = "nothing"
UNSET = "unset"
_COMPARED = ("fixed", "template")
_OPTIONAL = ("template", "at", "cloud", "acknowledged")
_ALLOWED = "allowedFrom"
_PERHAPS_SAME = "; if the credentials imply that region already, leave it out, and nothing changes"

Changes = Mapping[str, tuple[Any, Any]]


def implied_region(cloud: str) -> str:
    """The region of an entry of clouds.yaml, or of the OS_ variables for ``""``; empty if unset.

    Reads files only, sends no request. In offline runs it is the region of their made-up cloud.
    """
    if os.environ.get("GPUFORM_OFFLINE"):
        return _OFFLINE_REGION
    from gpuform.clients.openstack.cloud import connect

    try:
        return connect(cloud or None).region
    except (Failure, InputError):
        return ""


@dataclass(frozen=True)
class Regions:
    """The region of the cluster (``old``), and the one it is to have (``new``); empty if unknown.

    ``error`` says why the region must be declared.
    """

    old: str
    new: str
    error: str = ""


def _with_region(fixed: Any, region: str) -> Any:
    return {**fixed, PATH: region} if region and isinstance(fixed, Mapping) else fixed


def compare_regions(before: Mapping[str, Any], after: Mapping[str, Any], lookup: RegionLookup) -> Regions:
    """Compare the last run's region with this one's; ``lookup`` is `implied_region`, called only if needed.

    Declaring the region that the credentials imply is not a change. Leaving it out is not one either: the
    provider keeps a cluster's region if its program names none.
    """
    cloud, declared = str(after.get("cloud") or ""), _declared_region(after)
    old = str(before.get(RECORD) or _declared_region(before))
    if declared:
        if before and not old:
            old = lookup(str(before.get("cloud", cloud)))
        return Regions(old, declared)
    same_source = before.get("cloud", cloud) == cloud and not _declared_region(before)
    if old and same_source:
        return Regions(old, old)
    implied = lookup(cloud)
    if old and implied and implied != old:
        fact = f'{PATH}: the cluster is in "{old}", and without it new node groups would go to "{implied}"'
        return Regions(old, old, f'{fact}, which the credentials imply; write region: "{old}"')
    return Regions(old or implied, old or implied)


def _declared_region(inputs: Mapping[str, Any]) -> str:
    fixed = inputs.get("fixed")
    region = fixed.get(PATH) if isinstance(fixed, Mapping) else None
    return region if isinstance(region, str) else ""


class ReplacementGuard(Guard):
    """Compares fixed values with the last run's, in check, so that a preview fails as an update does."""

    def __init__(self, lookup: RegionLookup = implied_region) -> None:
        self._region = lookup

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": inputs["what"]}

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        """Refuse every fixed value that differs from ``olds``; a new guard has nothing to compare.

        Records two things beside the inputs: the cluster's region, and the old values of an allowed
        replacement, because the guard cannot see whether the replacement took place.
        """
        inputs = {key: value for key, value in news.items() if value is not None}
        unknown = unknown_inputs(inputs, INPUTS)
        missing = [(key, "is missing") for key in INPUTS if key not in inputs and key not in _OPTIONAL]
        if unknown or missing:
            return CheckResult(inputs, [*unknown, *missing])
        before, after = reveal(olds), reveal(inputs)
        if "cloud" in after:
            regions = compare_regions(before, after, self._region)
            if regions.error:
                return CheckResult(inputs, [("", regions.error)])
            before = {**before, "fixed": _with_region(before.get("fixed"), regions.old)}
            after = {**after, "fixed": _with_region(after.get("fixed"), regions.new)}
            inputs |= {RECORD: regions.new} if regions.new else {}
        changed = changes(before, after)
        if not changed:
            return CheckResult(inputs)
        message, name = describe(before, after, changed), _acknowledging_name(before)
        by_name = name in acknowledged_names(after)
        if not after["allowReplace"] and not by_name:
            return CheckResult(inputs, [("", f"{message}; {_remedy(before, after, changed)}")])
        reason = f"acknowledged as {name}" if by_name else f"{after['allow']} allows it"
        await call.warn(f"{message}; {reason}")
        return CheckResult({**inputs, _ALLOWED: _allowed_values(before, changed)})


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new value of each fixed value that differs, by path; None if unset.

    A new guard and a value that is not known yet are not changes. ``template`` is compared only if neither
    run can apply a template by an upgrade.
    """
    changed: dict[str, tuple[Any, Any]] = {}
    for key in _COMPARED:
        old, new = before.get(key), after.get(key)
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            continue
        for path in sorted({*old, *new}):
            before_value, after_value = old.get(path), new.get(path)
            if before_value != after_value and not has_unknown(after_value):
                changed[path] = (before_value, after_value)
    return changed


def describe(before: Mapping[str, Any], after: Mapping[str, Any], changed: Changes) -> str:
    """Message with what cannot be done in place, and what the last run says would be lost.

    If a value returns to the old value of an allowed replacement, it says only that this may be lost: a
    replacement that was interrupted before it began leaves nothing to replace.
    """
    prefix, reverted = after.get("at") or "", _reverted(before, changed)
    facts = [
        f"{prefix}{path}: the replacement of {show(new)} by {show(old)} was allowed, and may "
        "not have taken place"
        if path in reverted
        else f"{prefix}{path}: {show(old)} cannot become {show(new)} in place"
        for path, (old, new) in changed.items()
    ]
    losses = ", ".join(str(loss) for loss in before.get("lost") or ()) or NOTHING
    condition = "if it has, " if len(reverted) == len(changed) else ""
    return f"{', '.join(facts)}; {condition}{after['what']} would be replaced, which loses: {losses}"


def _acknowledging_name(before: Mapping[str, Any]) -> str:
    """The name that acknowledges the replacement: the old cluster's, or the pool's."""
    name = (before.get("fixed") or {}).get("name")
    return str(name or before["what"].rpartition(" ")[2])


def _remedy(before: Mapping[str, Any], after: Mapping[str, Any], changed: Changes) -> str:
    if len(_reverted(before, changed)) == len(changed):
        return f"set {after['allow']}: true, and the preview shows whether it has; or restore the last value"
    hint = _PERHAPS_SAME if PATH in changed and changed[PATH][0] is None else ""
    return f"set {after['allow']}: true for one run, or undo the change{hint}"


def _reverted(before: Mapping[str, Any], changed: Changes) -> list[str]:
    """Paths of values that return to the old value of an allowed replacement."""
    allowed = before.get(_ALLOWED) or {}
    return [path for path, (_, new) in changed.items() if show(new) in allowed.get(path, ())]


def _allowed_values(before: Mapping[str, Any], changed: Changes) -> dict[str, list[str]]:
    """Old values of allowed replacements by path, oldest first, until a run finds no change."""
    allowed = before.get(_ALLOWED) or {}
    added = {path: [*allowed.get(path, ()), show(old)] for path, (old, _) in changed.items()}
    return {**allowed, **added}


def show(value: Any) -> str:
    if value is None:
        return UNSET
    return json.dumps(value)
