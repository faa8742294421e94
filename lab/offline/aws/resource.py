"""The handler of every type of the table; resources exist only in the engine's state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Call, Change, CheckResult, DiffResult, Properties, ReadResult
from gpuform.provider.properties import UNKNOWN, reveal
from lab.offline.aws import outputs, requests
from lab.offline.aws.row import ResourceRow


class OfflineResource:
    """One type. No request is sent to AWS; a read returns what is in the state."""

    def __init__(self, row: ResourceRow, settings: outputs.Settings) -> None:
        self.row = row
        self.settings = settings

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        """Fill in the provider's defaults and a name, and validate the API calls with botocore."""
        inputs = {key: value for key, value in news.items() if value is not None}
        for name, value in self.row.defaults.items():
            inputs.setdefault(name, value)
        name_input = self.row.name_input
        if name_input and name_input not in inputs:
            made = outputs.generated_name(self.row, call.urn, call.name, reveal(inputs))
            inputs[name_input] = olds.get(name_input) or made
        region = inputs.get("region") or self.settings.region
        if region not in outputs.partitions() and region is not UNKNOWN:
            return CheckResult(inputs, [("region", f"{region!r} is not an AWS region; set aws:region")])
        return CheckResult(inputs, requests.find_failures(self.row, reveal(inputs)))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        """Compare the inputs, and the tags and the region that the provider adds."""
        old, new = reveal(old_inputs), reveal(news)
        changed = changes(old, new)
        if self.row.regional and reveal(olds).get("region") != (new.get("region") or self.settings.region):
            changed["region"] = Change.UPDATE
        tags = outputs.all_tags(self.settings, news)
        if self.row.tagged and reveal(olds).get("tagsAll") != tags:
            changed["tagsAll"] = Change.UPDATE
        replaces = replacing_paths(self.row, changed)
        deletes_first = bool(replaces) and self._has_same_name(call, old, new)
        return DiffResult(changed, replaces, delete_before_replace=deletes_first)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        if call.preview:
            return "", outputs.planned_outputs(self.row, self.settings, news)
        return outputs.computed_outputs(self.row, self.settings, call.urn, news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """What the state has; for an imported resource without outputs, they are made up now."""
        if not inputs:
            raise OperationError(f"{call.type} {id}: offline runs cannot read from AWS")
        if not olds:
            id, olds = outputs.computed_outputs(self.row, self.settings, call.urn, inputs, id)
        return ReadResult(id, olds, inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """The new inputs merged over the old outputs; some outputs change with them (``renewed_outputs``)."""
        touched = {path.split(".")[0].split("[")[0] for path in self._changed(old_inputs, news)}
        new_outputs = outputs.planned_outputs(self.row, self.settings, news)
        if not call.preview:
            new_outputs = outputs.computed_outputs(self.row, self.settings, call.urn, news)[1]
        old_outputs = {key: old for key, old in olds.items() if key in self.row.outputs and key not in news}
        for name, causes in self.row.renewed_outputs.items():
            if touched.intersection(causes):
                old_outputs.pop(name, None)
        kept = {key: value for key, value in old_outputs.items() if key in new_outputs}
        blocks = self._merge_blocks(new_outputs, olds, news)
        return {**new_outputs, **kept, **blocks, **self._next_version(call, touched, olds, news)}

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        if self.row.deletion_guard and reveal(olds).get(self.row.deletion_guard) is True:
            raise OperationError(
                f"{call.name}: {self.row.deletion_guard} is on, so AWS does not delete it; "
                "turn it off, run up, then destroy"
            )

    def _changed(self, old_inputs: Properties, news: Properties) -> dict[str, Change]:
        return changes(reveal(old_inputs), reveal(news))

    def _merge_blocks(self, new_outputs: Properties, olds: Properties, news: Properties) -> Properties:
        """Blocks with members of both the program and AWS keep AWS's members."""
        result: Properties = {}
        for name, template in self.row.outputs.items():
            before, new = olds.get(name), news.get(name)
            if isinstance(template, dict) and isinstance(before, dict) and isinstance(new, dict):
                aws_members = {key: value for key, value in before.items() if key in template}
                result[name] = {**new_outputs[name], **aws_members, **new}
        return result

    def _next_version(self, call: Call, touched: set[str], olds: Properties, news: Properties) -> Properties:
        """A launch template's version: one more with each change of its content."""
        name = self.row.version_output
        if not name or not touched.difference(self.row.version_exempt):
            return {}
        value: Any = UNKNOWN if call.preview else int(reveal(olds)[name]) + 1
        return {name: value, **({"defaultVersion": value} if news.get("updateDefaultVersion") else {})}

    def _has_same_name(self, call: Call, old: Properties, new: Properties) -> bool:
        """Whether old and new object would have the same name, chosen by the program."""
        name_input = self.row.name_input
        same = bool(name_input) and old.get(name_input) == new.get(name_input)
        return same and not self._is_generated(call, new)

    def _is_generated(self, call: Call, inputs: Properties) -> bool:
        other_inputs = {key: value for key, value in inputs.items() if key != self.row.name_input}
        generated_name = outputs.generated_name(self.row, call.urn, call.name, other_inputs)
        return bool(inputs[self.row.name_input][:-7] == generated_name[:-7])


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Change]:
    """Each path that differs, in plain values; an unknown value counts as different."""
    return dict(_walk(old, new, ""))


def replacing_paths(row: ResourceRow, changed: Mapping[str, Change]) -> list[str]:
    return [
        path
        for path, change in changed.items()
        if row.forces_replacement(re.sub(r"\[\d+\]", "", path), removed=change is Change.DELETE)
    ]


def _walk(old: Any, new: Any, path: str) -> Iterator[tuple[str, Change]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            name = key if re.fullmatch(r"\w+", key) else f'["{key}"]'
            joined = name if not path else f"{path}{name}" if name.startswith("[") else f"{path}.{name}"
            yield from _walk(old.get(key), new.get(key), joined)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _walk(*pair, f"{path}[{index}]")
    elif new is UNKNOWN or old != new:
        yield path, _change_kind(old, new)


def _change_kind(old: Any, new: Any) -> Change:
    if old is None:
        return Change.ADD
    return Change.DELETE if new is None else Change.UPDATE
